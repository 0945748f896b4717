"""What a package index shows: the README with absolute links, and addresses, where somebody names one.

WEIGHBRIDGE_REPOSITORY names where the repository can be read, as `https://github.com/OWNER/weighbridge`;
WEIGHBRIDGE_DOCS names the built site. Without them the package claims no address, and a link to a file of the
repository is text: none is dead.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?!https?:)([^)\s#]*)(#[^)\s]*)?\)")


class ReadmeHook(MetadataHookInterface):
    """Give the package its long description and its addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        repository = os.environ.get("WEIGHBRIDGE_REPOSITORY", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository)}
        metadata["urls"] = addresses(repository, os.environ.get("WEIGHBRIDGE_DOCS", ""))


def absolute(text: str, repository: str) -> str:
    """Return a page whose links lead to the repository; without one, their words."""

    def lead(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/main/{target}{anchor})"

    return LINK.sub(lead, text)


def addresses(repository: str, documentation: str) -> dict[str, str]:
    """Return the addresses that are known."""
    known = {"Documentation": documentation} if documentation else {}
    if not repository:
        return known
    log = f"{repository}/blob/main/CHANGELOG.md"
    return known | {"Repository": repository, "Issues": f"{repository}/issues", "Changelog": log}
