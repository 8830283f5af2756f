"""The assembler that kernels are written in.

PeachPy supplies the instructions: which operands they take, which extensions they need, how they are encoded.
Registers, labels, loops, constants, unwind information and the text of the `.S` file are made here.
"""

from gen.dsl.assembler import Assembler, Label
from gen.dsl.errors import DslError, LevelError, RegisterBudgetError
from gen.dsl.exponential import COEFFICIENTS, Exponential, NaturalExponential, polynomial
from gen.dsl.kernel import Constant, Contract, Instruction, Kernel, Loop
from gen.dsl.operands import Memory, Register, at
from gen.dsl.vectors import Avx2, Avx512, VectorUnit, vector_unit

__all__ = [
    "COEFFICIENTS",
    "Assembler",
    "Avx2",
    "Avx512",
    "Constant",
    "Contract",
    "DslError",
    "Exponential",
    "Instruction",
    "Kernel",
    "Label",
    "LevelError",
    "Loop",
    "Memory",
    "NaturalExponential",
    "Register",
    "RegisterBudgetError",
    "VectorUnit",
    "at",
    "polynomial",
    "vector_unit",
]
