"""A driver root as full as a real one: libraries that the linker takes for such, and the files beside them."""

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.upstream.build import c_compiler

LIBRARIES: Mapping[str, str] = {
    "libcuda": "libcuda.so.1",
    "libcudadebugger": "libcudadebugger.so.1",
    "libnvcuvid": "libnvcuvid.so.1",
    "libnvidia-cfg": "libnvidia-cfg.so.1",
    "libnvidia-encode": "libnvidia-encode.so.1",
    "libnvidia-fbc": "libnvidia-fbc.so.1",
    "libnvidia-gpucomp": "libnvidia-gpucomp.so.{version}",
    "libnvidia-nvvm": "libnvidia-nvvm.so.4",
    "libnvidia-opencl": "libnvidia-opencl.so.1",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-allocator": "libnvidia-allocator.so.1",
    "libnvidia-glcore": "libnvidia-glcore.so.{version}",
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libEGL_nvidia": "libEGL_nvidia.so.0",
    "vdpau/libvdpau_nvidia": "libvdpau_nvidia.so.1",
}
"""SONAMEs by file name, of the driver 580 for servers. Without libnvidia-sandboxutils, which nvidia-ctk would call."""
OTHERS = {"libnvidia-egl-gbm.so.1.1.2": "libnvidia-egl-gbm.so.1", "libnvidia-nvvm70.so.4": "libnvidia-nvvm70.so.4"}
"""The same, for libraries with versions of their own."""
PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-modprobe",
)
CONFIGS = (
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "usr/share/nvidia/nvoptix.bin",
    "etc/OpenCL/vendors/nvidia.icd",
    "etc/vulkan/icd.d/nvidia_icd.json",
    "etc/vulkan/implicit_layer.d/nvidia_layers.json",
)


def make_full_driver(root: Path, version: str, *, library_dir: str = "usr/lib/x86_64-linux-gnu") -> Path:
    """Everything but NVML, which `tests.fakenvml.library` installs; returns the root."""
    directory = root / library_dir
    (directory / "vdpau").mkdir(parents=True)
    names = {f"{name}.so.{version}": soname.format(version=version) for name, soname in LIBRARIES.items()}
    for name, soname in {**names, **OTHERS}.items():
        library = directory / name
        _compile(library, soname)
        link = library.with_name(soname)
        if link != library:
            link.symlink_to(library.name)
    (directory / "libcuda.so").symlink_to("libcuda.so.1")
    for program in PROGRAMS:
        _file(root / "usr/bin" / program, mode=0o755)
    for name in CONFIGS:
        _file(root / name)
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        _file(root / "lib/firmware/nvidia" / version / name)
    for name in ("nvidia-persistenced", "nvidia-fabricmanager"):
        _socket(root / "run" / name / "socket")
    return root


def _file(path: Path, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(mode)


def _compile(library: Path, soname: str) -> None:
    command = [c_compiler(), "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-o", library, "-x", "c", os.devnull]
    subprocess.run(command, check=True)


def _socket(path: Path) -> None:
    path.parent.mkdir(parents=True)
    where = os.open(path.parent, os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{where}/{path.name}")  # a test's folder may be too deep for a socket's path
    finally:
        os.close(where)
