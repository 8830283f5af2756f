"""The families of kernels; each file ends with the table of the kernels that are made from it."""
