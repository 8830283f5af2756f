/* pack_patches_f32_16_avx2
 *
 *   dst[c][8 g + l] = mask[2 g][l] ? segment[2 g][c][l] : mask[2 g + 1][l] ? segment[2 g + 1][c][l] : 0
 *   where segment[s][c] = segment[s] + c * channel_stride bytes
 *
 *   void pack_patches_f32_16_avx2(size_t channels, const struct sdgen_patches *patches, size_t channel_stride, float *dst, size_t dst_stride);
 *
 * patches: 4 segments and masks are used; masks are 0 or -1. Segments are read only in
 * the lanes of their mask, and may be NULL where they have none.
 * dst: `channels` rows of 16 elements, dst_stride bytes apart. All aligned to 4 bytes.
 * Nothing else is read or written.
 *
 * Registers:
 *   rdi                channels: argument
 *   rsi                patches: argument
 *   rdx                channel_stride: argument
 *   rcx                dst: argument
 *   r8                 dst_stride: argument
 *   r9, rax, r10, r11  segment[s]: addresses of the segments
 *   rbx                step: channel_stride, or 0 where no segment has lanes
 *   rbp                any: a segment that has lanes
 *   rsi                offset: place of the channel in the segments: c step
 *   ymm0-ymm3          mask[s]: lanes of the segments
 *   ymm4-ymm5          value: lanes of a vector's segments
 *
 * Extensions: AVX, CMOV
 * Made from gen/microkernels/pack_patches.py by: python -m gen show pack_patches_f32_16_avx2
 */
	.intel_syntax noprefix
	.text
	.p2align 6
	.globl pack_patches_f32_16_avx2
	.hidden pack_patches_f32_16_avx2
	.type pack_patches_f32_16_avx2, @function
pack_patches_f32_16_avx2:
	.cfi_startproc
	push rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0
	push rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbp, 0
	test rdi, rdi
	jz .Ldone

	/* any = some segment with lanes; where none has, this structure, again and again */
	mov rbp, rsi
	xor ebx, ebx
	vmovups ymm0, [rsi+64]
	mov r9, [rsi]
	vptest ymm0, ymm0
	cmovnz rbp, r9
	cmovnz rbx, rdx
	vmovups ymm1, [rsi+96]
	mov rax, [rsi+8]
	vptest ymm1, ymm1
	cmovnz rbp, rax
	cmovnz rbx, rdx
	vmovups ymm2, [rsi+128]
	mov r10, [rsi+16]
	vptest ymm2, ymm2
	cmovnz rbp, r10
	cmovnz rbx, rdx
	vmovups ymm3, [rsi+160]
	mov r11, [rsi+24]
	vptest ymm3, ymm3
	cmovnz rbp, r11
	cmovnz rbx, rdx

	/* segments without lanes may point anywhere: harmless, but slow where no memory is; read `any` instead */
	vptest ymm0, ymm0
	cmovz r9, rbp
	vptest ymm1, ymm1
	cmovz rax, rbp
	vptest ymm2, ymm2
	cmovz r10, rbp
	vptest ymm3, ymm3
	cmovz r11, rbp

	/* offset = 0 */
	xor esi, esi

	/* does any group have lanes in its second segment? */
	vorps ymm4, ymm1, ymm3
	vptest ymm4, ymm4
	jnz .Ltwo

	/* no: dst[c][8 g + l] = segment[2 g][c][l] or 0 */
	.p2align 5
.Lone_segment:
	vmaskmovps ymm4, ymm0, [r9+rsi]
	vmovups [rcx], ymm4
	vmaskmovps ymm4, ymm2, [r10+rsi]
	vmovups [rcx+32], ymm4
	add rsi, rbx
	add rcx, r8
	sub rdi, 1
	jnz .Lone_segment
.Ldone:

	.cfi_remember_state
	pop rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbp
	pop rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	vzeroupper
	ret
	.cfi_restore_state

	/* yes: dst[c][8 g + l] = segment[2 g][c][l] or segment[2 g + 1][c][l] or 0 */
.Ltwo:
	.p2align 5
.Ltwo_segments:
	vmaskmovps ymm4, ymm0, [r9+rsi]
	vmaskmovps ymm5, ymm1, [rax+rsi]
	vorps ymm4, ymm4, ymm5
	vmovups [rcx], ymm4
	vmaskmovps ymm4, ymm2, [r10+rsi]
	vmaskmovps ymm5, ymm3, [r11+rsi]
	vorps ymm4, ymm4, ymm5
	vmovups [rcx+32], ymm4
	add rsi, rbx
	add rcx, r8
	sub rdi, 1
	jnz .Ltwo_segments

	.cfi_remember_state
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
	.size pack_patches_f32_16_avx2, .-pack_patches_f32_16_avx2

	.section .note.GNU-stack,"",@progbits
