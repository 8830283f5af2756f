"""Convolution of 3x3 by Winograd's minimal algorithms: the matrices, code made from them, the families of kernels."""
