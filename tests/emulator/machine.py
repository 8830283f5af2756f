"""One emulated processor with its memory: loads images, calls functions in them, and tells how that ended.

The processor runs in long mode with an interrupt descriptor table whose 32 handlers are a HLT each, on a stack of their
own, so that every exception ends up here with its exact address. Nothing else is in its memory but the images, a stack
and what the call brings along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from iced_x86 import Decoder, DecoderOptions, Formatter, FormatterSyntax, Instruction, Register
from numpy.typing import NDArray

from tests.emulator import amx, models, vdpphps
from tests.emulator.image import Image
from tests.emulator.memory import PAGE, Memory
from tests.emulator.traps import PageFaultError, TrapError, Vector

# Where the machine's own things are: the upper half, where no program has anything.
_SYSTEM = 0xFFFF_8000_0000_0000
_HANDLERS, _RETURN, _ENTRY, _SAVE_MASKS, BARRIER = (_SYSTEM + offset for offset in (0, 0x400, 0x500, 0x600, 0x700))
_IDT, _GDT, _TSS = (_SYSTEM + PAGE + offset for offset in (0, 0x800, 0xA00))
_SCRATCH = _SYSTEM + 2 * PAGE
_HANDLER_STACK = _SYSTEM + 4 * PAGE  # its end
_STACKS, _STACK_STEP, _STACK_SIZE = _SYSTEM + 0x100 * PAGE, 0x100 * PAGE, 16 * PAGE

MOST_THREADS = 4
_VECTORS = 32
_ERROR_CODE = {8, 10, 11, 12, 13, 14, 17, 21}  # of these the processor pushes one
_CODE, _DATA, _TASK = 0x08, 0x10, 0x18  # selectors
_HLT, _RET = b"\xf4", b"\xc3"
_NEAR_CALLS = (12, 13)  # what Bochs tells its hook of branches: direct, indirect

# As tests/native/trampoline.S does: registers that a function must keep hold patterns, others garbage.
_CANARY_BYTES = 128
_CANARY = 0x5CA1AB1E0DDBA115.to_bytes(8, "little") * (_CANARY_BYTES // 8)
_GARBAGE = 0xBAADF00DBAADF00D
_KEPT = {
    "rbx": 0xB1B1B1B1DEADBEE1,
    "rbp": 0xB2B2B2B2DEADBEE2,
    "r12": 0xB3B3B3B3DEADBEE3,
    "r13": 0xB4B4B4B4DEADBEE4,
    "r14": 0xB5B5B5B5DEADBEE5,
    "r15": 0xB6B6B6B6DEADBEE6,
}
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_MXCSR, _MXCSR_CONTROL, _X87, _DIRECTION = 0x1F80, 0xFFC0, 0x37F, 0x400
_ONES = (1 << 64) - 1

_GENERAL = {
    getattr(Register, name.upper()): name
    for name in ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
}


@dataclass(frozen=True)
class Fault:
    """An exception of the processor. `address` and `access` (reading, writing, executing) are those of a page fault."""

    exception: str
    instruction: str
    place: str  # symbol+offset
    address: int | None
    access: str
    reason: str  # what an emulated instruction has to say

    def describe(self, address: str | None = None) -> str:
        """A sentence; `address` is what to call the address instead of its number."""
        if self.address is not None:
            what = f"{self.access} at {address or hex(self.address)}"
        else:
            what = self.exception + (f" ({self.reason})" if self.reason else "")
        return f"{what}, by `{self.instruction}` at {self.place}"


@dataclass
class _Thread:
    """One of the calls that run by turns. `top` is the stack pointer that it must end with."""

    state: Any
    top: int
    tiles: amx.Tiles
    broken: list[str] | None = None  # None until it has returned
    waits: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a call ended: a fault; or what was not kept, and the blocks' bytes afterwards."""

    fault: Fault | None
    broken: tuple[str, ...]
    blocks: list[bytes]


class Machine:
    """A processor of one of the models."""

    def __init__(self, model: str) -> None:
        self._model = models.MODELS[model]
        self._bochs, memory = models.load(model)
        self._session = self._bochs.Session()
        self._session.missing_page_handler = lambda address: None
        self._hook = self._bochs.Hook()
        self._hook.hlt = lambda session, cpu: session.stop()
        self._slicing_hook = self._bochs.Hook()
        self._slicing_hook.hlt = self._hook.hlt
        self._slicing_hook.ucnear_branch = self._stop_at_call
        self._memory = Memory(memory.page_insert)
        self._images: list[Image] = []
        self._tiles = amx.Tiles()
        self._state: Any = None
        self._hooks: list[Any] = []
        self._place_system()

    def _place_system(self) -> None:
        code = bytearray(PAGE)
        for vector in range(_VECTORS):
            code[16 * vector : 16 * vector + 1] = _HLT
        code[_RETURN - _SYSTEM : _RETURN - _SYSTEM + 1] = _HLT
        # Mask registers can be reached by code only: all ones before a call, and written to [rax].
        # kxnorw k, k, k
        fill = b"".join(bytes([0xC5, 0x84 | (~k & 15) << 3, 0x46, 0xC0 | k << 3 | k]) for k in range(8))
        # kmovw [rax + 2 k], k
        save = b"".join(bytes([0xC5, 0xF8, 0x91, 0x40 | k << 3, 2 * k]) for k in range(8))
        jump = b"\x41\xff\xe3"  # jmp r11
        for address, instructions in (
            (_ENTRY, (fill if self._model.avx512 else b"") + jump),
            (_SAVE_MASKS, save + _HLT),
            (BARRIER, _HLT + _RET),
        ):
            code[address - _SYSTEM : address - _SYSTEM + len(instructions)] = instructions

        data = bytearray(PAGE)
        for vector in range(_VECTORS):
            handler = _HANDLERS + 16 * vector
            low, high = handler & 0xFFFF | (handler & 0xFFFF_0000) << 32, handler >> 32
            gate = low | _CODE << 16 | 1 << 32 | 0x8E << 40  # present, interrupt gate, on the first stack of the TSS
            data[16 * vector : 16 * vector + 16] = gate.to_bytes(8, "little") + high.to_bytes(8, "little")
        gdt = (0, 0x00AF_9B00_0000_FFFF, 0x00CF_9300_0000_FFFF)
        data[_GDT % PAGE : _GDT % PAGE + 24] = b"".join(entry.to_bytes(8, "little") for entry in gdt)
        data[_TSS % PAGE + 36 : _TSS % PAGE + 44] = _HANDLER_STACK.to_bytes(8, "little")
        self._memory.place(_SYSTEM, bytes(code), False, True)
        self._memory.place(_IDT, bytes(data), True, False)
        self._memory.place(_SCRATCH, bytes(PAGE), True, False)
        self._memory.place(_HANDLER_STACK - PAGE, bytes(PAGE), True, False)
        for thread in range(MOST_THREADS):
            self._memory.place(_STACKS + thread * _STACK_STEP, bytes(_STACK_SIZE), True, False)

    def load(self, image: Image) -> None:
        """Places an image; it stays."""
        for segment in image.segments:
            self._memory.place(segment.address, segment.data, segment.writable, segment.executable)
        self._images.append(image)

    def call(
        self, function: int, threads: Sequence[Sequence[int]], slow: int, blocks: Sequence[tuple[int, bytes]]
    ) -> Outcome:
        """Calls a function by the System V ABI as so many threads, up to MOST_THREADS, each with up to 6 integers.

        Threads take turns at every call that they make themselves; the thread `slow` (-1: none) gets its turn when all
        others wait at the function BARRIER or are done. Blocks of memory (address of a page, whole pages) are there
        during the call only.
        """
        mark = self._memory.mark()
        placed = []
        try:
            for address, data in blocks:
                self._memory.place(address, data, True, False)
                placed.append((address, len(data)))
            fault, broken = self._run([self._start(function, *thread) for thread in enumerate(threads)], slow)
            after = [] if fault else [self._memory.read(address, size) for address, size in placed]
            return Outcome(fault, broken, after)
        finally:
            self._memory.release(mark, placed)

    def _run(self, threads: list[_Thread], slow: int) -> tuple[Fault | None, tuple[str, ...]]:
        self._hooks = [self._hook if len(threads) == 1 else self._slicing_hook]
        turn = 0
        while any(thread.broken is None for thread in threads):
            ready = [n for n, thread in enumerate(threads) if thread.broken is None and not thread.waits]
            if not ready:
                if any(thread.broken is not None for thread in threads):
                    return None, ("barrier",)
                for thread in threads:
                    thread.waits = False
                continue
            others = [n for n in ready if n != slow] or ready
            turn += 1
            fault = self._advance(threads[others[turn % len(others)]])
            if fault:
                return fault, ()
        return None, tuple(sorted({name for thread in threads for name in thread.broken or ()}))

    def _advance(self, thread: _Thread) -> Fault | None:
        """Runs a thread until it returns, comes to the barrier, makes a call (of several) or faults."""
        self._tiles = thread.tiles
        self._session.cpu.state = thread.state
        while True:
            self._session.run(self._hooks)
            self._state = thread.state = self._session.cpu.state
            stopped = self._state.rip - 1
            if stopped == _RETURN:
                thread.broken = self._broken(thread.top)
                return None
            if stopped == BARRIER:
                thread.waits = True
                return None
            if not _HANDLERS <= stopped < _HANDLERS + 16 * _VECTORS:
                return None
            fault = self._trap(Vector((stopped - _HANDLERS) // 16))
            if fault:
                return fault

    def _stop_at_call(self, session: Any, cpu: int, what: int, source: int, target: int) -> None:
        # Where a function begins, nothing is in the mask registers, which `State` does not hold.
        if what in _NEAR_CALLS:
            session.stop()

    def _start(self, function: int, number: int, arguments: Sequence[int]) -> _Thread:
        top = _STACKS + number * _STACK_STEP + _STACK_SIZE - _CANARY_BYTES
        self._memory.write(top - 8, _RETURN.to_bytes(8, "little") + _CANARY)
        return _Thread(self._initial(function, arguments, top - 8), top, amx.Tiles())

    def _initial(self, function: int, arguments: Sequence[int], rsp: int) -> Any:
        bochs = self._bochs
        state = bochs.State()
        # Long mode, system set up as an operating system does (Intel SDM, volume 3, chapters 2, 5 and 11).
        state.cr0 = 0x8001_0033  # PG, WP, NE, ET, MP, PE
        state.cr3 = self._memory.root
        state.cr4 = 0x4_0620  # OSXSAVE, OSXMMEXCPT, OSFXSR, PAE
        state.efer = 0xD00  # NXE, LMA, LME
        state.xcr0 = 0xE7 if self._model.avx512 else 0x7
        state.mxcsr, state.mxcsr_mask = _MXCSR, 0xFFFF
        state.fpcw, state.fptw = _X87, 0xFFFF
        state.rflags = 2
        for names, selector, base, limit, attributes in (
            (("cs",), _CODE, 0, 0xFFFF_FFFF, 0xA09B),
            (("ds", "es", "fs", "gs", "ss"), _DATA, 0, 0xFFFF_FFFF, 0xC093),
            (("tr",), _TASK, _TSS, 0x67, 0x8B),
        ):
            segment = bochs.Segment()
            segment.present, segment.selector, segment.base = True, selector, base
            segment.limit, segment.attr = limit, attributes
            for name in names:
                setattr(state, name, segment)
        for name, base, limit in (("gdtr", _GDT, 23), ("idtr", _IDT, 16 * _VECTORS - 1)):
            table = bochs.GlobalSegment()
            table.base, table.limit = base, limit
            setattr(state, name, table)

        state.rax = state.r10 = _GARBAGE
        for name, value in _KEPT.items():
            setattr(state, name, value)
        values = [*(argument & _ONES for argument in arguments), *[_GARBAGE] * 6]
        for name, value in zip(_ARGUMENTS, values, strict=False):
            setattr(state, name, value)
        state.rip, state.r11, state.rsp = _ENTRY, function, rsp
        # NaN everywhere, but clean upper halves in the registers whose state vzeroupper is about.
        vectors = []
        for number in range(32):
            vector = bochs.Zmm()
            vector.q = [_ONES] * 2 + [_ONES if number >= 16 and self._model.avx512 else 0] * 6
            vectors.append(vector)
        state.zmm = vectors
        return state

    def _broken(self, top: int) -> list[str]:
        """What the function did not leave as the ABI asks; names as in tests/native/support.h."""
        state = self._state
        broken = [name for name, value in _KEPT.items() if getattr(state, name) != value]
        if state.rsp != top:
            broken.append("rsp")
        if self._memory.read(top, _CANARY_BYTES) != _CANARY:
            broken.append("stack_above")
        if state.rflags & _DIRECTION:
            broken.append("direction")
        if (state.mxcsr ^ _MXCSR) & _MXCSR_CONTROL:
            broken.append("mxcsr")
        if state.fpcw != _X87:
            broken.append("x87")
        if any(any(vector.q[2:]) for vector in state.zmm[:16]):
            broken.append("upper_ymm")
        if self._tiles.configured:
            broken.append("tiles")
        return broken

    def _trap(self, vector: Vector) -> Fault | None:
        """Handles an exception: continues behind an instruction that is emulated here, else says what it was."""
        has_code = int(vector) in _ERROR_CODE
        frame = np.frombuffer(self._memory.read(self._state.rsp, 48 if has_code else 40), np.uint64)
        code = int(frame[0]) if has_code else 0
        rip, _, rflags, rsp, _ = (int(value) for value in frame[has_code:])
        address: int | None = self._state.cr2 if vector == Vector.PAGE else None
        # Error code of a page fault (Intel SDM, volume 3, figure 5-12): bit 1 write, bit 4 instruction fetch.
        access = "executing" if code & 16 else "writing" if code & 2 else "reading"
        bytes_ = self._fetch(rip)
        text, reason = _disassembly(bytes_, rip), ""
        if vector == Vector.INVALID_OPCODE:
            self._state.rsp, self._state.rip, self._state.rflags = rsp, rip, rflags
            try:
                length = self._emulate(bytes_, rip)
                if length:
                    self._state.rip = rip + length
                    self._session.cpu.state = self._state
                    return None
            except TrapError as trap:
                vector, reason = trap.vector, str(trap)
            except PageFaultError as fault:
                vector, address, access = Vector.PAGE, fault.address, "writing" if fault.write else "reading"
        exception = {Vector.INVALID_OPCODE: "invalid opcode", Vector.PAGE: "page fault"}.get(
            vector, f"{vector.name.lower().replace('_', ' ')} exception"
        )
        place = next((place for image in self._images if (place := image.place(rip))), hex(rip))
        return Fault(exception, text, place, address, access if address is not None else "", reason)

    def _fetch(self, rip: int) -> bytes:
        """Up to 15 bytes of an instruction."""
        for length in (15, PAGE - rip % PAGE):
            try:
                return self._memory.read(rip, length)
            except PageFaultError:
                continue
        return b""

    def _emulate(self, code: bytes, rip: int) -> int:
        """Executes an instruction that Bochs does not have; its length, 0 if it is none of them either."""
        instruction = _decode(code, rip) if code else Instruction()
        feature = amx.feature(instruction)
        if feature in self._model.added:
            self._tiles.execute(instruction, self)
            return int(instruction.len)
        if "AVX10_2" in self._model.added and (dot := vdpphps.decode(code, rip)):
            vdpphps.execute(dot, self)
            return int(dot.len)
        return 0

    # ---- traps.Processor ----

    def general(self, register: int) -> int:
        return int(getattr(self._state, _GENERAL[register]))

    def vector(self, number: int) -> NDArray[np.uint32]:
        return np.array(self._state.zmm[number].q, np.uint64).view(np.uint32)

    def set_vector(self, number: int, values: NDArray[np.uint32]) -> None:
        vectors = self._state.zmm
        vectors[number].q = [int(value) for value in values.view(np.uint64)]
        self._state.zmm = vectors

    def mask(self, number: int) -> int:
        state = self._session.cpu.state
        state.rip, state.rax = _SAVE_MASKS, _SCRATCH
        self._session.cpu.state = state
        self._session.run([self._hook])
        return int.from_bytes(self._memory.read(_SCRATCH + 2 * number, 2), "little")

    def read(self, address: int, size: int) -> bytes:
        return self._memory.read(address, size)

    def write(self, address: int, data: bytes) -> None:
        self._memory.write(address, data)


def _decode(code: bytes, rip: int) -> Instruction:
    """Also where the operands are not allowed together: that is for whoever executes it to say."""
    return Decoder(64, code, DecoderOptions.NO_INVALID_CHECK, ip=rip).decode()


def _disassembly(code: bytes, rip: int) -> str:
    if not code:
        return "no instruction: nothing is there"
    formatter = Formatter(FormatterSyntax.GAS)
    dot = vdpphps.decode(code, rip)
    if dot:
        return formatter.format(dot).replace("vdpbf16ps", "vdpphps")
    instruction = _decode(code, rip)
    return formatter.format(instruction) if instruction else f"{code[:8].hex(' ')} ..., no known instruction"
