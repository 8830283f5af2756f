/* pack_f16_6_avx2
 *
 *   dst[p][i] = i < rows ? float(src[i][p]) : 0,  p < k, i < 6
 *
 *   void pack_f16_6_avx2(size_t k, size_t rows, const void *src, ptrdiff_t src_stride, float *dst);
 *
 * src: `rows` rows of k elements (f16), src_stride bytes apart, aligned to nothing;
 * 1 <= rows <= 6; src_stride may be negative or odd; k may be 0.
 * dst: [k][6] without gaps, aligned to 4 bytes. Nothing else is read or written.
 *
 * Registers:
 *   rdi                     k: argument
 *   rsi                     rows: argument
 *   rdx                     src: argument
 *   rcx                     src_stride: argument
 *   r8                      dst: argument
 *   r9, rax, r10, r11, rbx  row[i]: ends of the rows of a pass, from its second on
 *   rbp                     index: place in the rows, in bytes before their ends
 *   r12                     cursor: place in the panel; the following row before that
 *   ymm0-ymm3               x: four elements of rows i and i + 4
 *   ymm4-ymm7               y: elements of rows i and i + 1 in turn
 *   ymm8                    mask: lanes that exist
 *
 * Extensions: AVX, CMOV, F16C
 * Made from gen/microkernels/pack.py by: python -m gen show pack_f16_6_avx2
 */
	.intel_syntax noprefix
	.text
	.p2align 6
	.globl pack_f16_6_avx2
	.hidden pack_f16_6_avx2
	.type pack_f16_6_avx2, @function
pack_f16_6_avx2:
	.cfi_startproc
	push rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	push rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	push r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset r12, 0

	/* src = end of row 0 */
	lea rdx, [rdx+rdi*2]

	/* row[i] = end of row min(i, rows - 1); mask[i] = i < rows */
	lea r12, [rdx+rcx]
	mov r9, rdx
	cmp rsi, 1
	cmova r9, r12
	lea r12, [r9+rcx]
	mov rax, r9
	cmp rsi, 2
	cmova rax, r12
	lea r12, [rax+rcx]
	mov r10, rax
	cmp rsi, 3
	cmova r10, r12
	lea r12, [r10+rcx]
	mov r11, r10
	cmp rsi, 4
	cmova r11, r12
	lea r12, [r11+rcx]
	mov rbx, r11
	cmp rsi, 5
	cmova rbx, r12
	mov rbp, rsi
	mov r12, 8
	cmp rbp, r12
	cmova rbp, r12
	sub r12, rbp
	lea rbp, [rip+.Ltail_masks]
	vmovups ymm8, [rbp+r12*4]
	mov r12, r8
	mov rbp, rdi
	shl rbp, 1
	neg rbp
	cmp rdi, 4
	jb .Lfew
	je .Llast

	/* dst[p][i] = float(row[i][p]), p from index to index + 3, while more than four are left */
	.p2align 5
.Lblock:
	vmovsd xmm0, [rdx+rbp]
	vmovhps xmm0, xmm0, [r11+rbp]
	vcvtph2ps ymm0, xmm0
	vmovsd xmm1, [r9+rbp]
	vmovhps xmm1, xmm1, [rbx+rbp]
	vcvtph2ps ymm1, xmm1
	vcvtph2ps xmm2, [rax+rbp]
	vcvtph2ps xmm3, [r10+rbp]
	vunpcklps ymm4, ymm0, ymm1
	vunpckhps ymm5, ymm0, ymm1
	vunpcklps ymm6, ymm2, ymm3
	vunpckhps ymm7, ymm2, ymm3
	vunpcklpd ymm0, ymm4, ymm6
	vunpckhpd ymm1, ymm4, ymm6
	vunpcklpd ymm2, ymm5, ymm7
	vunpckhpd ymm3, ymm5, ymm7
	vandps ymm0, ymm0, ymm8
	vmovups [r12], ymm0
	vandps ymm1, ymm1, ymm8
	vmovups [r12+24], ymm1
	vandps ymm2, ymm2, ymm8
	vmovups [r12+48], ymm2
	vandps ymm3, ymm3, ymm8
	vmovups [r12+72], ymm3
	add r12, 96
	add rbp, 8
	cmp rbp, -8
	jl .Lblock

	/* the last four elements, those again that are done already */
	add rbp, 8
	imul rbp, rbp, 12
	sub r12, rbp
.Llast:
	vmovsd xmm0, [rdx-8]
	vmovhps xmm0, xmm0, [r11-8]
	vcvtph2ps ymm0, xmm0
	vmovsd xmm1, [r9-8]
	vmovhps xmm1, xmm1, [rbx-8]
	vcvtph2ps ymm1, xmm1
	vcvtph2ps xmm2, [rax-8]
	vcvtph2ps xmm3, [r10-8]
	vunpcklps ymm4, ymm0, ymm1
	vunpckhps ymm5, ymm0, ymm1
	vunpcklps ymm6, ymm2, ymm3
	vunpckhps ymm7, ymm2, ymm3
	vunpcklpd ymm0, ymm4, ymm6
	vunpckhpd ymm1, ymm4, ymm6
	vunpcklpd ymm2, ymm5, ymm7
	vunpckhpd ymm3, ymm5, ymm7
	vandps ymm0, ymm0, ymm8
	vmovups [r12], ymm0
	vandps ymm1, ymm1, ymm8
	vmovups [r12+24], ymm1
	vandps ymm2, ymm2, ymm8
	vmovups [r12+48], ymm2
	vandps ymm3, ymm3, ymm8
	vmovups [r12+72], xmm3
	vextractf128 xmm3, ymm3, 1
	vmovlps [r12+88], xmm3
	jmp .Lpass_done

	/* fewer than four elements, one by one */
.Lfew:
	test rdi, rdi
	jz .Lpass_done
.Lelement:
	vxorps xmm0, xmm0, xmm0
	vxorps xmm1, xmm1, xmm1
	vpinsrw xmm0, xmm0, [rdx+rbp], 0
	vpinsrw xmm0, xmm0, [r9+rbp], 1
	vpinsrw xmm0, xmm0, [rax+rbp], 2
	vpinsrw xmm0, xmm0, [r10+rbp], 3
	vpinsrw xmm0, xmm0, [r11+rbp], 4
	vpinsrw xmm0, xmm0, [rbx+rbp], 5
	vcvtph2ps ymm0, xmm0
	vandps ymm0, ymm0, ymm8
	vmovups [r12], xmm0
	vextractf128 xmm0, ymm0, 1
	vmovlps [r12+16], xmm0
	add r12, 24
	add rbp, 2
	jnz .Lelement
.Lpass_done:

	.cfi_remember_state
	pop r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore r12
	pop rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbp
	pop rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	vzeroupper
	ret
	.cfi_restore_state
	.cfi_endproc
	.size pack_f16_6_avx2, .-pack_f16_6_avx2

	.section .rodata
	.balign 32
.Ltail_masks:
	.long 4294967295, 4294967295, 4294967295, 4294967295, 4294967295, 4294967295, 4294967295, 4294967295
	.long 0, 0, 0, 0, 0, 0, 0, 0

	.section .note.GNU-stack,"",@progbits
