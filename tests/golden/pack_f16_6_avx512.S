/* pack_f16_6_avx512
 *
 *   dst[p][i] = i < rows ? float(src[i][p]) : 0,  p < k, i < 6
 *
 *   void pack_f16_6_avx512(size_t k, size_t rows, const void *src, ptrdiff_t src_stride, float *dst);
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
 *   zmm0-zmm3               x: places of rows i and i + 4, then of all rows
 *   zmm4-zmm7               y: places of rows i and i + 1, then of all rows
 *   zmm8                    lane: on its way into or out of a register
 *   zmm9                    helper: for the conversion
 *   k1                      left: elements of a row beyond whole blocks
 *   k2                      now: elements of a row that are left
 *   k3                      mask: rows that exist, of each place
 *   k4                      exact: rows of the pass
 *
 * Extensions: AVX, AVX512BW, AVX512F, AVX512VL, BMI2, CMOV
 * Made from gen/microkernels/pack.py by: python -m gen show pack_f16_6_avx512
 */
	.intel_syntax noprefix
	.text
	.p2align 6
	.globl pack_f16_6_avx512
	.hidden pack_f16_6_avx512
	.type pack_f16_6_avx512, @function
pack_f16_6_avx512:
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

	/* left[e] = e < k mod 16 */
	mov rbp, rdi
	and rbp, 15
	mov r12, -1
	bzhi r12, r12, rbp
	kmovd k1, r12d

	/* exact[i] = i < 6 */
	mov r12d, 63
	kmovd k4, r12d
	vmovups zmm9, [rip+.Leven_then_odd]

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
	mov r12, 255
	bzhi r12, r12, rsi
	imul r12, r12, 257
	kmovd k3, r12d
	mov r12, r8
	mov rbp, rdi
	shl rbp, 1
	neg rbp
	add rbp, 32
	jg .Lrest

	/* dst[p][i] = float(row[i][p]), 16 elements of each row at a time */
	.p2align 5
.Lblock:
	vmovups xmm0, [rdx+rbp-32]
	vinsertf32x4 zmm0, zmm0, [r11+rbp-32], 1
	vinsertf32x4 zmm0, zmm0, [rdx+rbp-16], 2
	vinsertf32x4 zmm0, zmm0, [r11+rbp-16], 3
	vmovups xmm1, [r9+rbp-32]
	vinsertf32x4 zmm1, zmm1, [rbx+rbp-32], 1
	vinsertf32x4 zmm1, zmm1, [r9+rbp-16], 2
	vinsertf32x4 zmm1, zmm1, [rbx+rbp-16], 3
	vmovups xmm2, [rax+rbp-32]
	vinsertf32x4 zmm2, zmm2, [rax+rbp-16], 2
	vmovups xmm3, [r10+rbp-32]
	vinsertf32x4 zmm3, zmm3, [r10+rbp-16], 2
	vunpcklpd zmm4, zmm0, zmm1
	vunpckhpd zmm5, zmm0, zmm1
	vunpcklpd zmm6, zmm2, zmm3
	vunpckhpd zmm7, zmm2, zmm3
	vshufps zmm0{k3}{z}, zmm4, zmm6, 136
	vshufps zmm1{k3}{z}, zmm4, zmm6, 221
	vshufps zmm2{k3}{z}, zmm5, zmm7, 136
	vshufps zmm3{k3}{z}, zmm5, zmm7, 221
	vpermw zmm4, zmm9, zmm0
	vextractf64x4 ymm0, zmm4, 1
	vcvtph2ps zmm4, ymm4
	vcvtph2ps zmm0, ymm0
	vpermw zmm5, zmm9, zmm1
	vextractf64x4 ymm1, zmm5, 1
	vcvtph2ps zmm5, ymm5
	vcvtph2ps zmm1, ymm1
	vpermw zmm6, zmm9, zmm2
	vextractf64x4 ymm2, zmm6, 1
	vcvtph2ps zmm6, ymm6
	vcvtph2ps zmm2, ymm2
	vpermw zmm7, zmm9, zmm3
	vextractf64x4 ymm3, zmm7, 1
	vcvtph2ps zmm7, ymm7
	vcvtph2ps zmm3, ymm3
	vmovups ymmword ptr [r12], ymm4
	vmovups ymmword ptr [r12+24], ymm0
	vmovups ymmword ptr [r12+48], ymm5
	vmovups ymmword ptr [r12+72], ymm1
	vmovups ymmword ptr [r12+96], ymm6
	vmovups ymmword ptr [r12+120], ymm2
	vmovups ymmword ptr [r12+144], ymm7
	vmovups ymmword ptr [r12+168], ymm3
	vextractf64x4 ymmword ptr [r12+192], zmm4, 1
	vextractf64x4 ymmword ptr [r12+216], zmm0, 1
	vextractf64x4 ymmword ptr [r12+240], zmm5, 1
	vextractf64x4 ymmword ptr [r12+264], zmm1, 1
	vextractf64x4 ymmword ptr [r12+288], zmm6, 1
	vextractf64x4 ymmword ptr [r12+312], zmm2, 1
	vextractf64x4 ymmword ptr [r12+336], zmm7, 1
	vextractf64x4 ymm8, zmm3, 1
	vmovups ymmword ptr [r12+360]{k4}, ymm8
	add r12, 384
	add rbp, 32
	jle .Lblock

	/* the elements that are left */
.Lrest:
	sub rbp, 32
	jz .Lpass_done
	kmovd k2, k1
	.p2align 5
.Lplace:
	vmovdqu16 xmm0{k2}{z}, [rdx+rbp]
	vmovdqu16 xmm8{k2}{z}, [r11+rbp]
	vinsertf32x4 ymm0, ymm0, xmm8, 1
	vmovdqu16 xmm1{k2}{z}, [r9+rbp]
	vmovdqu16 xmm8{k2}{z}, [rbx+rbp]
	vinsertf32x4 ymm1, ymm1, xmm8, 1
	vmovdqu16 xmm2{k2}{z}, [rax+rbp]
	vmovdqu16 xmm3{k2}{z}, [r10+rbp]
	vunpcklpd ymm4, ymm0, ymm1
	vunpckhpd ymm5, ymm0, ymm1
	vunpcklpd ymm6, ymm2, ymm3
	vunpckhpd ymm7, ymm2, ymm3
	vshufps ymm0{k3}{z}, ymm4, ymm6, 136
	vshufps ymm1{k3}{z}, ymm4, ymm6, 221
	vshufps ymm2{k3}{z}, ymm5, ymm7, 136
	vshufps ymm3{k3}{z}, ymm5, ymm7, 221
	vpermw zmm4, zmm9, zmm0
	vextractf64x4 ymm0, zmm4, 1
	vcvtph2ps zmm4, ymm4
	vcvtph2ps zmm0, ymm0
	vpermw zmm5, zmm9, zmm1
	vextractf64x4 ymm1, zmm5, 1
	vcvtph2ps zmm5, ymm5
	vcvtph2ps zmm1, ymm1
	vpermw zmm6, zmm9, zmm2
	vextractf64x4 ymm2, zmm6, 1
	vcvtph2ps zmm6, ymm6
	vcvtph2ps zmm2, ymm2
	vpermw zmm7, zmm9, zmm3
	vextractf64x4 ymm3, zmm7, 1
	vcvtph2ps zmm7, ymm7
	vcvtph2ps zmm3, ymm3
	vmovups ymmword ptr [r12]{k4}, ymm4
	cmp rbp, -2
	jge .Lpass_done
	vmovups ymmword ptr [r12+24]{k4}, ymm0
	cmp rbp, -4
	jge .Lpass_done
	vmovups ymmword ptr [r12+48]{k4}, ymm5
	cmp rbp, -6
	jge .Lpass_done
	vmovups ymmword ptr [r12+72]{k4}, ymm1
	cmp rbp, -8
	jge .Lpass_done
	vmovups ymmword ptr [r12+96]{k4}, ymm6
	cmp rbp, -10
	jge .Lpass_done
	vmovups ymmword ptr [r12+120]{k4}, ymm2
	cmp rbp, -12
	jge .Lpass_done
	vmovups ymmword ptr [r12+144]{k4}, ymm7
	cmp rbp, -14
	jge .Lpass_done
	vmovups ymmword ptr [r12+168]{k4}, ymm3
	kshiftrd k2, k2, 8
	add r12, 192
	add rbp, 16
	jl .Lplace
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
	.size pack_f16_6_avx512, .-pack_f16_6_avx512

	.section .rodata
	.balign 64
.Leven_then_odd:
	.long 131072, 393220, 655368, 917516, 1179664, 1441812, 1703960, 1966108
	.long 196609, 458757, 720905, 983053, 1245201, 1507349, 1769497, 2031645

	.section .note.GNU-stack,"",@progbits
