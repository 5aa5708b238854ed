"""Adds the program to the wheel. It is packed as it is: `build` says which file."""

import os
from typing import Any, Dict

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltBinary(BuildHookInterface):
    def initialize(self, version: str, build_data: Dict[str, Any]) -> None:
        # The binary needs glibc 2.31 (Debian 11), and no particular Python.
        build_data["tag"] = "py3-none-manylinux_2_31_x86_64"
        build_data["pure_python"] = False
        build_data["shared_scripts"][os.environ["POLITESSE_BINARY"]] = "politesse"
        if copyright := os.environ.get("POLITESSE_COPYRIGHT"):
            build_data["shared_data"][copyright] = "share/doc/politesse/copyright"
