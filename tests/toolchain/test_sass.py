"""How a disassembly is read: entries, loops, counts."""

import pytest

from jaxpipe.errors import ToolchainError
from jaxpipe.toolchain import nvrtc, sass

LISTING = """\
.text.one:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], R24, gsb0 ;
        /*0020*/              @P0  BRA `(.L_x_0) ;
.L_x_1:
        /*0030*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0040*/                   BRA `(.L_x_1);
.text.two:
        /*0000*/                   EXIT ;
"""


def test_entries_and_their_instructions_are_told_apart() -> None:
    found = sass.parse(LISTING)
    assert [len(s.instructions) for s in found.values()] == [5, 1]
    assert list(found) == ["one", "two"]


def test_the_main_loop_is_where_tensor_cores_are_densest() -> None:
    entry = sass.parse(LISTING)["one"]
    assert len(entry.main_loop()) == 2
    assert sass.tensor_instructions(entry.main_loop()) == 1
    assert sass.parse(LISTING)["two"].main_loop() == ()


def test_opcodes_are_counted_with_their_modifiers() -> None:
    entry = sass.parse(LISTING)["one"]
    assert (entry.count("HGMMA"), entry.count("BRA"), entry.count("GMMA")) == (1, 2, 0)


def test_a_real_cubin_is_disassembled() -> None:
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }'
    found = sass.disassemble(nvrtc.compile(source, "sm_90a").cubin)
    assert found["k"].count("STG") == 1


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ToolchainError, match="refused a cubin of 4 bytes"):
        sass.disassemble(b"junk")
