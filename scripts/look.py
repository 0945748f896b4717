"""Look at a page in headless Chromium: a picture of every tab in every guise, and what its console says.

    python scripts/look.py report.html --into pictures
    python scripts/look.py --demo --into pictures --keep docs/pictures/page.png     # `make look`

The browser is the one of CHROMIUM, or the first of `chromium`, `chromium-browser`, `google-chrome` on the path.
Without one, and where the console says anything, it fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0")
WIDE, NARROW = (1280, 900), (400, 900)
DARK = "--blink-settings=preferredColorScheme=0"  # 1 is light
CONSOLE = re.compile(r"CONSOLE[:(]\d*.*")


def browser() -> str:
    """Return the browser, or end saying that there is none."""
    named = os.environ.get("CHROMIUM", "")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        sys.exit("look: no Chromium: apt-get install chromium, or name one in CHROMIUM")
    return found


def guises(page: Path, silent: Path, bare: Path) -> Iterator[tuple[str, Path, str, tuple[int, int], tuple[str, ...]]]:
    """Yield the name of every picture with its file, tab, size and flags."""
    tabs = re.findall(r'<section id="(\w+)"', page.read_text(encoding="utf-8"))
    for tab in tabs:
        yield f"{tab}-light", page, tab, WIDE, ("--blink-settings=preferredColorScheme=1",)
        yield f"{tab}-dark", page, tab, WIDE, (DARK,)
        yield f"{tab}-phone", page, tab, NARROW, ()
    yield "no-script", silent, "", (1280, 3000), ()
    yield "no-style", bare, "", (1280, 3000), ()


def look(page: Path, into: Path) -> list[str]:
    """Make all pictures; return what the console said of any."""
    program, said = browser(), []
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        written = page.read_text(encoding="utf-8")
        silent, bare = Path(folder) / "silent.html", Path(folder) / "bare.html"
        silent.write_text(without(written, "script"), encoding="utf-8")
        bare.write_text(without(written, "script", "style"), encoding="utf-8")
        common = (program, *FLAGS, f"--user-data-dir={folder}/profile")
        for name, file, tab, (width, height), flags in guises(page, silent, bare):
            shot = (f"--screenshot={into / name}.png", f"--window-size={width},{height}")
            opened = [*common, *flags, *shot, f"file://{file.resolve()}#{tab}"]
            done = subprocess.run(opened, capture_output=True, text=True, check=False)
            if not (into / f"{name}.png").exists():
                sys.exit(f"look: {program} made no picture of {name}:\n{done.stderr[-2000:]}")
            if file != bare:  # where images are forbidden, the browser says so
                said += [f"{name}: {line}" for line in CONSOLE.findall(done.stderr)]
        target = f"--print-to-pdf={into / 'printed.pdf'}"
        printing = [*common, "--no-pdf-header-footer", target, f"file://{page.resolve()}"]
        subprocess.run(printing, capture_output=True, check=True)
    return said


def of_the_demo(folder: Path) -> Path:
    """Run the demo in a new folder, and draw all its bundles."""
    tool = (sys.executable, "-m", "weighbridge")
    subprocess.run([*tool, "demo", "--dir", str(folder)], check=True, stdout=subprocess.DEVNULL)
    bundles = sorted(str(one.relative_to(folder)) for one in folder.glob("*evi*/bundles/*"))
    bundles += sorted(str(one.relative_to(folder)) for one in folder.glob(".weighbridge/bundles/*"))
    subprocess.run([*tool, "report", *bundles, "--run", "run", "-o", "page.html"], check=True, cwd=folder)
    return folder / "page.html"


def without(page: str, *elements: str) -> str:
    """Return a page as a server shows it that forbids these: nor does it load images of data, without style."""
    for name in elements:
        page = re.sub(f"<{name}>.*?</{name}>", "", page, flags=re.DOTALL)
    forbidding = "default-src 'none'" + ("" if "style" in elements else "; img-src data:; style-src 'unsafe-inline'")
    return re.sub(r"content=\"default-src[^\"]*\"", f'content="{forbidding}"', page)


def main() -> None:
    """Look at the page that was named."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("page", type=Path, nargs="?")
    asked.add_argument("--demo", action="store_true", help="draw the page of the demo first")
    asked.add_argument("--into", type=Path, default=Path("pictures"))
    asked.add_argument("--keep", type=Path, help="a copy of the picture of where two sides part")
    given = asked.parse_args()
    if (given.page is None) is not given.demo:
        asked.error("name a page, or give --demo")
    browser()  # before the demo takes its minute
    with tempfile.TemporaryDirectory() as folder:
        said = look(of_the_demo(Path(folder) / "demo") if given.demo else given.page, given.into)
    if given.keep:
        shutil.copyfile(given.into / "parity-light.png", given.keep)
    print(f"{len(list(given.into.glob('*.png')))} pictures in {given.into}, {len(said)} console messages")
    print("\n".join(said))
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
