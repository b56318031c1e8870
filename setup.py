"""Builds the native tracer, a library without an ABI of Python: one wheel of an architecture serves every Python."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/jouletrace/tracer/native")
FLAGS = ["-std=c11", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wshadow", "-Wformat=2", "-Werror"]


class Library(build_ext):
    """Builds a plain shared library, no module of Python."""

    def get_ext_filename(self, name: str) -> str:
        """The path of the library, without a tag of Python's ABI."""
        return name.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Nothing beyond what the source exports: there is no PyInit."""
        return []


class Wheel(bdist_wheel):
    """A wheel of one platform for any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """The tag: any Python 3, no ABI, this platform."""
        return ("py3", "none", super().get_tag()[2])


native = Extension(
    "jouletrace.tracer.native",
    [str(one) for one in sorted(NATIVE.glob("*.c"))],
    depends=[str(NATIVE / "native.h")],
    extra_compile_args=FLAGS,
    libraries=["dl", "pthread"],
    optional=True,  # without a compiler a program has its power alone, which is said
)
linux = sys.platform == "linux"
setup(ext_modules=[native] if linux else [], cmdclass={"build_ext": Library, "bdist_wheel": Wheel} if linux else {})
