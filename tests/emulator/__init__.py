"""Processors that this machine may not have, emulated: kernels and operations are called one at a time, and every
access to memory that is not theirs is found.

The processor is that of Bochs, by the package bochscpu-python. `process.Emulator` is what tests use; it runs
`machine.Machine` in a process of its own, since Bochs can be only one model of processor in a process."""
