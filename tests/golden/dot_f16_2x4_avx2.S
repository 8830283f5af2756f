/* dot_f16_2x4_avx2
 *
 *   c[i][j] = (sum over p < k of x[i][p] * w[j][p]) * scale + column_bias[j]
 *
 *   void dot_f16_2x4_avx2(size_t k, const float *x, ptrdiff_t x_stride, const void *w, ptrdiff_t w_stride, const struct sdgen_dot_output *output);
 *
 * x: [2][k], rows of x_stride bytes.
 * w: [4][k] of type f16, rows of w_stride bytes.
 * Strides may be negative; k may be 0.
 * c: [2][4], rows of c_stride bytes. column_bias: [4] or NULL.
 * All aligned to their elements. Nothing else is read or written.
 * Sums are all made in one order: elements 8 n to 8 n + 7 go to the lanes of one chain
 * by fused multiply-adds, n upwards, then those beyond whole vectors to chain 0, four, two and one of them, from lane 0 on.
 * Then the lanes: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
 * The product with the scale and the sum with the bias are rounded one by one.
 *
 * Registers:
 *   rdi            k: argument
 *   rsi            x: argument
 *   rdx            x_stride: argument
 *   rcx            w: argument
 *   r8             w_stride: argument
 *   r9             output: argument
 *   rax            ahead: place in the next tile's rows of w
 *   r10            x_end[n]: ends of the rows of x, from row 1 on
 *   rdx, r11, rbx  w_end[n]: ends of the rows of w, from row 1 on
 *   r8             left: elements that are left
 *   rsi            c: a row of C
 *   rdx            c_stride: from it to the next
 *   rcx            bias: column_bias
 *   ymm0-ymm7      sum[i][j][u]: chain u of each element of the tile
 *   ymm8-ymm9      held: a vector of each row of x
 *   ymm10          passing: a vector of one row of w after the other
 *   ymm8, ymm1     high: upper halves of sums
 *   ymm1           term: what t is multiplied by, then what is added
 *
 * Extensions: AVX, F16C, FMA3, MMX+
 * Made from gen/microkernels/dot.py by: python -m gen show dot_f16_2x4_avx2
 */
	.intel_syntax noprefix
	.text
	.p2align 6
	.globl dot_f16_2x4_avx2
	.hidden dot_f16_2x4_avx2
	.type dot_f16_2x4_avx2, @function
dot_f16_2x4_avx2:
	.cfi_startproc
	push rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset rbx, 0

	/* ahead = 4 w_stride - k, in elements */
	imul rax, r8, 4
	sar rax, 1
	sub rax, rdi

	/* x_end[n] = x + n x_stride + k elements, that of row 0 in x's register */
	lea rsi, [rsi+rdi*4]
	lea r10, [rsi+rdx]

	/* w_end[n] = w + n w_stride + k elements, that of row 0 in w's register */
	lea rcx, [rcx+rdi*2]
	lea rdx, [rcx+r8]
	lea r11, [rdx+r8]
	lea rbx, [r11+r8]

	/* index = -k, in k's register: the place in all rows, in elements before their ends */
	neg rdi

	/* sum = 0 */
	vxorps xmm0, xmm0, xmm0
	vxorps xmm1, xmm1, xmm1
	vxorps xmm2, xmm2, xmm2
	vxorps xmm3, xmm3, xmm3
	vxorps xmm4, xmm4, xmm4
	vxorps xmm5, xmm5, xmm5
	vxorps xmm6, xmm6, xmm6
	vxorps xmm7, xmm7, xmm7

	/* 32 elements of each row a pass: */
	/* sum[i][j][u] += x[i][p] * w[j][p], u = 0 */
	add rdi, 32
	jg .Lfew
	.p2align 5
.Lpass:
	prefetcht0 [rcx+rax*2]
	prefetcht0 [rdx+rax*2]
	prefetcht0 [r11+rax*2]
	prefetcht0 [rbx+rax*2]
	add rax, 32
	vmovups ymm8, [rsi+rdi*4-128]
	vmovups ymm9, [r10+rdi*4-128]
	vcvtph2ps ymm10, [rcx+rdi*2-64]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps ymm10, [rdx+rdi*2-64]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps ymm10, [r11+rdi*2-64]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps ymm10, [rbx+rdi*2-64]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	vmovups ymm8, [rsi+rdi*4-96]
	vmovups ymm9, [r10+rdi*4-96]
	vcvtph2ps ymm10, [rcx+rdi*2-48]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps ymm10, [rdx+rdi*2-48]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps ymm10, [r11+rdi*2-48]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps ymm10, [rbx+rdi*2-48]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	vmovups ymm8, [rsi+rdi*4-64]
	vmovups ymm9, [r10+rdi*4-64]
	vcvtph2ps ymm10, [rcx+rdi*2-32]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps ymm10, [rdx+rdi*2-32]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps ymm10, [r11+rdi*2-32]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps ymm10, [rbx+rdi*2-32]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	vmovups ymm8, [rsi+rdi*4-32]
	vmovups ymm9, [r10+rdi*4-32]
	vcvtph2ps ymm10, [rcx+rdi*2-16]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps ymm10, [rdx+rdi*2-16]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps ymm10, [r11+rdi*2-16]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps ymm10, [rbx+rdi*2-16]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	add rdi, 32
	jle .Lpass

	/* vector by vector */
.Lfew:
	sub rdi, 24
	jg .Lrest
	vmovups ymm8, [rsi+rdi*4-32]
	vmovups ymm9, [r10+rdi*4-32]
	vcvtph2ps ymm10, [rcx+rdi*2-16]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps ymm10, [rdx+rdi*2-16]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps ymm10, [r11+rdi*2-16]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps ymm10, [rbx+rdi*2-16]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	add rdi, 8
	jg .Lrest
	vmovups ymm8, [rsi+rdi*4-32]
	vmovups ymm9, [r10+rdi*4-32]
	vcvtph2ps ymm10, [rcx+rdi*2-16]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps ymm10, [rdx+rdi*2-16]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps ymm10, [r11+rdi*2-16]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps ymm10, [rbx+rdi*2-16]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	add rdi, 8
	jg .Lrest
	vmovups ymm8, [rsi+rdi*4-32]
	vmovups ymm9, [r10+rdi*4-32]
	vcvtph2ps ymm10, [rcx+rdi*2-16]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps ymm10, [rdx+rdi*2-16]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps ymm10, [r11+rdi*2-16]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps ymm10, [rbx+rdi*2-16]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	add rdi, 8

	/* the elements that are left, to chain 0 */
.Lrest:
	sub rdi, 8
	jz .Lproduct_done
	mov r8d, edi
	neg r8d
	test r8d, 4
	jz .Lno_4
	vmovups xmm8, [rsi+rdi*4]
	vmovups xmm9, [r10+rdi*4]
	vcvtph2ps xmm10, [rcx+rdi*2]
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vcvtph2ps xmm10, [rdx+rdi*2]
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vcvtph2ps xmm10, [r11+rdi*2]
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vcvtph2ps xmm10, [rbx+rdi*2]
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	add rdi, 4
.Lno_4:
	test r8d, 2
	jz .Lno_2
	vmovsd xmm8, [rsi+rdi*4]
	vmovsd xmm9, [r10+rdi*4]
	vmovss xmm10, [rcx+rdi*2]
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vmovss xmm10, [rdx+rdi*2]
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vmovss xmm10, [r11+rdi*2]
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vmovss xmm10, [rbx+rdi*2]
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
	add rdi, 2
.Lno_2:
	test r8d, 1
	jz .Lno_1
	vmovss xmm8, [rsi+rdi*4]
	vmovss xmm9, [r10+rdi*4]
	vpxor xmm10, xmm10, xmm10
	vpinsrw xmm10, xmm10, [rcx+rdi*2], 0
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm0, ymm8, ymm10
	vfmadd231ps ymm4, ymm9, ymm10
	vpxor xmm10, xmm10, xmm10
	vpinsrw xmm10, xmm10, [rdx+rdi*2], 0
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm1, ymm8, ymm10
	vfmadd231ps ymm5, ymm9, ymm10
	vpxor xmm10, xmm10, xmm10
	vpinsrw xmm10, xmm10, [r11+rdi*2], 0
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm2, ymm8, ymm10
	vfmadd231ps ymm6, ymm9, ymm10
	vpxor xmm10, xmm10, xmm10
	vpinsrw xmm10, xmm10, [rbx+rdi*2], 0
	vcvtph2ps xmm10, xmm10
	vfmadd231ps ymm3, ymm8, ymm10
	vfmadd231ps ymm7, ymm9, ymm10
.Lno_1:
.Lproduct_done:

	/* t[i][j] = the lanes of sum[i][j]: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) */
	vhaddps ymm0, ymm0, ymm1
	vhaddps ymm2, ymm2, ymm3
	vhaddps ymm0, ymm0, ymm2
	vextractf128 xmm1, ymm0, 1
	vaddps xmm0, xmm0, xmm1
	vhaddps ymm4, ymm4, ymm5
	vhaddps ymm6, ymm6, ymm7
	vhaddps ymm4, ymm4, ymm6
	vextractf128 xmm1, ymm4, 1
	vaddps xmm4, xmm4, xmm1

	/* t = t * scale */
	vbroadcastss xmm1, [r9+24]
	vmulps xmm0, xmm0, xmm1
	vmulps xmm4, xmm4, xmm1

	/* t = t + column_bias[j] */
	mov rcx, [r9+16]
	test rcx, rcx
	jz .Lunbiased
	vmovups xmm1, [rcx]
	vaddps xmm0, xmm0, xmm1
	vaddps xmm4, xmm4, xmm1
.Lunbiased:

	/* c = t */
	mov rsi, [r9]
	mov rdx, [r9+8]
	vmovups [rsi], xmm0
	add rsi, rdx
	vmovups [rsi], xmm4

	.cfi_remember_state
	pop rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore rbx
	vzeroupper
	ret
	.cfi_restore_state
	.cfi_endproc
	.size dot_f16_2x4_avx2, .-dot_f16_2x4_avx2

	.section .note.GNU-stack,"",@progbits
