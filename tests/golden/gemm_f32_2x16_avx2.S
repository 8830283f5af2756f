/* gemm_f32_2x16_avx2
 *
 *   c[i][j] = epilogue(sum over p < k of a[p][i] * b[p][j])
 *   epilogue(t): t = accumulate ? c + t : t;  t *= scale;  t += row_bias[i];  t += column_bias[j]
 *
 *   void gemm_f32_2x16_avx2(size_t k, const float *a, const float *b, float *c, size_t c_stride, const struct sdgen_epilogue *epilogue);
 *
 * a: [k][2] and b: [k][16], packed without gaps; k may be 0.
 * c: [2][columns], rows of c_stride bytes, 1 <= columns <= 16.
 * row_bias: [2] or NULL, column_bias: [columns] or NULL. All aligned to 4 bytes.
 * Nothing else is read or written; C is read only where accumulate is set.
 * Each element is one chain of fused multiply-adds in the order of p.
 *
 * Registers:
 *   rdi         k: argument
 *   rsi         a: argument
 *   rdx         b: argument
 *   rcx         c: argument
 *   r8          c_stride: argument
 *   r9          epilogue: argument
 *   rax         count: passes of the loop that are left
 *   rdi         columns: columns that exist
 *   rsi, rdx    bias: address of a bias
 *   rsi         scratch: for the mask
 *   ymm0-ymm3   sum[i][v]: the tile, row by row
 *   ymm4-ymm5   b[v]: a row of B
 *   ymm6-ymm7   x: elements of A
 *   ymm4, ymm5  term: what the epilogue adds or multiplies by
 *   ymm4        mask: lanes that exist
 *
 * Extensions: AVX, CMOV, FMA3, MMX+
 * Made from gen/microkernels/gemm_f32.py by: python -m gen show gemm_f32_2x16_avx2
 */
	.intel_syntax noprefix
	.text
	.p2align 6
	.globl gemm_f32_2x16_avx2
	.hidden gemm_f32_2x16_avx2
	.type gemm_f32_2x16_avx2, @function
gemm_f32_2x16_avx2:
	.cfi_startproc

	/* the tile of C is needed at the end; a row of it may lie in two lines */
	prefetcht0 [rcx]
	prefetcht0 [rcx+63]
	prefetcht0 [rcx+r8]
	prefetcht0 [rcx+r8+63]

	/* sum = 0 */
	vxorps xmm0, xmm0, xmm0
	vxorps xmm1, xmm1, xmm1
	vxorps xmm2, xmm2, xmm2
	vxorps xmm3, xmm3, xmm3

	/* 4 steps a pass: sum[i][j] += a[p][i] * b[p][j] */
	mov rax, rdi
	shr rax, 2
	jz .Lrest
	.p2align 5
.Lsteps:
	vmovups ymm4, [rdx]
	vmovups ymm5, [rdx+32]
	vbroadcastss ymm6, [rsi]
	vfmadd231ps ymm0, ymm6, ymm4
	vfmadd231ps ymm1, ymm6, ymm5
	vbroadcastss ymm7, [rsi+4]
	vfmadd231ps ymm2, ymm7, ymm4
	vfmadd231ps ymm3, ymm7, ymm5
	vmovups ymm4, [rdx+64]
	vmovups ymm5, [rdx+96]
	vbroadcastss ymm6, [rsi+8]
	vfmadd231ps ymm0, ymm6, ymm4
	vfmadd231ps ymm1, ymm6, ymm5
	vbroadcastss ymm7, [rsi+12]
	vfmadd231ps ymm2, ymm7, ymm4
	vfmadd231ps ymm3, ymm7, ymm5
	vmovups ymm4, [rdx+128]
	vmovups ymm5, [rdx+160]
	vbroadcastss ymm6, [rsi+16]
	vfmadd231ps ymm0, ymm6, ymm4
	vfmadd231ps ymm1, ymm6, ymm5
	vbroadcastss ymm7, [rsi+20]
	vfmadd231ps ymm2, ymm7, ymm4
	vfmadd231ps ymm3, ymm7, ymm5
	vmovups ymm4, [rdx+192]
	vmovups ymm5, [rdx+224]
	vbroadcastss ymm6, [rsi+24]
	vfmadd231ps ymm0, ymm6, ymm4
	vfmadd231ps ymm1, ymm6, ymm5
	vbroadcastss ymm7, [rsi+28]
	vfmadd231ps ymm2, ymm7, ymm4
	vfmadd231ps ymm3, ymm7, ymm5
	add rsi, 32
	add rdx, 256
	sub rax, 1
	jnz .Lsteps

	/* the steps that are left, one by one */
.Lrest:
	and rdi, 3
	jz .Lproduct_done
	.p2align 5
.Lsingle_step:
	vmovups ymm4, [rdx]
	vmovups ymm5, [rdx+32]
	vbroadcastss ymm6, [rsi]
	vfmadd231ps ymm0, ymm6, ymm4
	vfmadd231ps ymm1, ymm6, ymm5
	vbroadcastss ymm7, [rsi+4]
	vfmadd231ps ymm2, ymm7, ymm4
	vfmadd231ps ymm3, ymm7, ymm5
	add rsi, 8
	add rdx, 64
	sub rdi, 1
	jnz .Lsingle_step
.Lproduct_done:

	/* a full tile has 16 columns */
	mov edi, [r9+16]
	cmp edi, 16
	jne .Lpartial

	/* t = accumulate ? c + sum : sum */
	cmp dword ptr [r9+20], 0
	je .Lfull_overwrite
	vaddps ymm0, ymm0, [rcx]
	vaddps ymm1, ymm1, [rcx+32]
	vaddps ymm2, ymm2, [rcx+r8]
	vaddps ymm3, ymm3, [rcx+r8+32]
.Lfull_overwrite:

	/* t = t * scale */
	cmp dword ptr [r9+24], 1065353216
	je .Lfull_unscaled
	vbroadcastss ymm4, [r9+24]
	vmulps ymm0, ymm0, ymm4
	vmulps ymm1, ymm1, ymm4
	vmulps ymm2, ymm2, ymm4
	vmulps ymm3, ymm3, ymm4
.Lfull_unscaled:

	/* t = t + row_bias[row] */
	mov rsi, [r9]
	test rsi, rsi
	jz .Lfull_no_row_bias
	vbroadcastss ymm4, [rsi]
	vaddps ymm0, ymm0, ymm4
	vaddps ymm1, ymm1, ymm4
	vbroadcastss ymm4, [rsi+4]
	vaddps ymm2, ymm2, ymm4
	vaddps ymm3, ymm3, ymm4
.Lfull_no_row_bias:

	/* t = t + column_bias[column] */
	mov rsi, [r9+8]
	test rsi, rsi
	jz .Lfull_no_column_bias
	vmovups ymm4, [rsi]
	vaddps ymm0, ymm0, ymm4
	vaddps ymm2, ymm2, ymm4
	vmovups ymm4, [rsi+32]
	vaddps ymm1, ymm1, ymm4
	vaddps ymm3, ymm3, ymm4
.Lfull_no_column_bias:

	/* c = t */
	vmovups [rcx], ymm0
	vmovups [rcx+32], ymm1
	vmovups [rcx+r8], ymm2
	vmovups [rcx+r8+32], ymm3

	vzeroupper
	ret
.Lpartial:

	/* mask[lane] = 0 + lane < columns */
	mov rsi, 8
	cmp rdi, rsi
	cmova rdi, rsi
	sub rsi, rdi
	lea rdi, [rip+.Ltail_masks]
	vmovups ymm4, [rdi+rsi*4]

	/* t = accumulate ? c + sum : sum */
	cmp dword ptr [r9+20], 0
	je .Lpartial0_overwrite
	vmaskmovps ymm5, ymm4, [rcx]
	vaddps ymm0, ymm0, ymm5
	vmaskmovps ymm5, ymm4, [rcx+r8]
	vaddps ymm2, ymm2, ymm5
.Lpartial0_overwrite:

	/* t = t * scale */
	cmp dword ptr [r9+24], 1065353216
	je .Lpartial0_unscaled
	vbroadcastss ymm5, [r9+24]
	vmulps ymm0, ymm0, ymm5
	vmulps ymm2, ymm2, ymm5
.Lpartial0_unscaled:

	/* t = t + row_bias[row] */
	mov rdx, [r9]
	test rdx, rdx
	jz .Lpartial0_no_row_bias
	vbroadcastss ymm5, [rdx]
	vaddps ymm0, ymm0, ymm5
	vbroadcastss ymm5, [rdx+4]
	vaddps ymm2, ymm2, ymm5
.Lpartial0_no_row_bias:

	/* t = t + column_bias[column] */
	mov rdx, [r9+8]
	test rdx, rdx
	jz .Lpartial0_no_column_bias
	vmaskmovps ymm5, ymm4, [rdx]
	vaddps ymm0, ymm0, ymm5
	vaddps ymm2, ymm2, ymm5
.Lpartial0_no_column_bias:

	/* c = t */
	vmaskmovps [rcx], ymm4, ymm0
	vmaskmovps [rcx+r8], ymm4, ymm2

	/* nothing is left where columns <= 8 */
	mov edi, [r9+16]
	sub edi, 8
	jbe .Lpartial_done

	/* mask[lane] = 8 + lane < columns */
	mov rsi, 8
	cmp rdi, rsi
	cmova rdi, rsi
	sub rsi, rdi
	lea rdi, [rip+.Ltail_masks]
	vmovups ymm4, [rdi+rsi*4]

	/* t = accumulate ? c + sum : sum */
	cmp dword ptr [r9+20], 0
	je .Lpartial1_overwrite
	vmaskmovps ymm5, ymm4, [rcx+32]
	vaddps ymm1, ymm1, ymm5
	vmaskmovps ymm5, ymm4, [rcx+r8+32]
	vaddps ymm3, ymm3, ymm5
.Lpartial1_overwrite:

	/* t = t * scale */
	cmp dword ptr [r9+24], 1065353216
	je .Lpartial1_unscaled
	vbroadcastss ymm5, [r9+24]
	vmulps ymm1, ymm1, ymm5
	vmulps ymm3, ymm3, ymm5
.Lpartial1_unscaled:

	/* t = t + row_bias[row] */
	mov rdx, [r9]
	test rdx, rdx
	jz .Lpartial1_no_row_bias
	vbroadcastss ymm5, [rdx]
	vaddps ymm1, ymm1, ymm5
	vbroadcastss ymm5, [rdx+4]
	vaddps ymm3, ymm3, ymm5
.Lpartial1_no_row_bias:

	/* t = t + column_bias[column] */
	mov rdx, [r9+8]
	test rdx, rdx
	jz .Lpartial1_no_column_bias
	vmaskmovps ymm5, ymm4, [rdx+32]
	vaddps ymm1, ymm1, ymm5
	vaddps ymm3, ymm3, ymm5
.Lpartial1_no_column_bias:

	/* c = t */
	vmaskmovps [rcx+32], ymm4, ymm1
	vmaskmovps [rcx+r8+32], ymm4, ymm3
.Lpartial_done:

	vzeroupper
	ret
	.cfi_endproc
	.size gemm_f32_2x16_avx2, .-gemm_f32_2x16_avx2

	.section .rodata
	.balign 32
.Ltail_masks:
	.long 4294967295, 4294967295, 4294967295, 4294967295, 4294967295, 4294967295, 4294967295, 4294967295
	.long 0, 0, 0, 0, 0, 0, 0, 0

	.section .note.GNU-stack,"",@progbits
