"""A report as data, rendered as one self-contained HTML page and as Markdown.

The HTML loads nothing from anywhere and works without JavaScript; its one script, which the page's own policy names by
digest, only hides and shows entries of a ``Browser``. All text is taken as untrusted: it is escaped,
control characters and lone surrogates are shown as U+FFFD, and only SVG made by ``pathfinder.pages.svg`` goes in as
markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$])")
ROOT = "../"
"""The project, from where a page lies: in a folder of it."""
LINEAGE = f"{ROOT}.pathfinder/stages.html"
"""The page of what each file here was made by, and from what (``pathfinder.lineage.stage_times``)."""
_NUMBER = re.compile(r"^[+\-\u2212]?[\d\u202f,.]+\s?(%|s|K)?( \[.*\])?$|^(missing|–|\?)?$")


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; ``is_notice`` sets it off as something the reader must not miss."""

    text: str
    is_notice: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names its rows; ``emphasis`` lists rows (from 0) to stand out.

    ``origin`` is the file that its figures come from; the page leads to it and to its lineage. ``links`` are addresses
    of rows by their names, and ``is_anchored`` gives each row an address of its own (``anchor_of`` its name).
    """

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    emphasis: frozenset[int] = frozenset()
    origin: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    is_anchored: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing (SVG that we made), what it shows in words, and its caption."""

    svg: str
    alt: str
    caption: str


@dataclass(frozen=True, slots=True)
class Listing:
    """An ordered list of texts; marked ones are set off."""

    items: Sequence[str]
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Fold:
    """Something that opens on a click (on paper and in Markdown it is open). A ``Browser`` filters by ``tags``."""

    summary: str
    blocks: Sequence[Text | Table | Figure | Listing]
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Browser:
    """Entries that can be filtered by their tags and their words; without JavaScript all of them show."""

    entries: Sequence[Fold]


Block = Text | Table | Figure | Listing | Fold | Browser


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """The section's address on the page."""
        return anchor_of(self.title)


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report."""

    title: str
    blocks: Sequence[Block]
    sections: Sequence[Section]


def anchor_of(name: str) -> str:
    """The address on its page of what is called so: ``metrics/train/full.json`` is at ``metrics-train-full-json``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def visible(text: str) -> str:
    """Text without characters that a reader cannot see or an encoder cannot write."""
    return _UNSAFE.sub("\ufffd", text)


def escape(text: str) -> str:
    """Text safe inside HTML elements and quoted attributes."""
    return html.escape(visible(text), quote=True)


def to_html(page: Page) -> str:
    """One file: styles inside, no request to anywhere; a script only where there is something to filter."""
    links = "".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in page.sections)
    sections = "".join(
        f'<section id="{s.anchor}"><h2>{escape(s.title)}</h2>{"".join(map(_html, s.blocks))}</section>\n'
        for s in page.sections
    )
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(page.sections) > 1 else ""
    has_browser = any(isinstance(block, Browser) for s in page.sections for block in s.blocks)
    script = f"<script>{SCRIPT}</script>" if has_browser else ""
    policy = "default-src 'none'; style-src 'unsafe-inline'" + f"; script-src '{_digest(SCRIPT)}'" * has_browser
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(page.title)}</title><style>{STYLE}</style></head>\n<body><main>"
        f"<h1>{escape(page.title)}</h1>{''.join(map(_html, page.blocks))}{contents}\n{sections}</main>{script}"
        "</body></html>\n"
    )


def to_markdown(page: Page) -> str:
    """The same content; drawings become their words."""
    parts = [f"# {_md(page.title)}", *map(_markdown, page.blocks)]
    for section in page.sections:
        parts += [f"## {_md(section.title)}", *map(_markdown, section.blocks)]
    return "\n\n".join(parts) + "\n"


def _html(block: Block) -> str:
    match block:
        case Text():
            return f"<p{' class=notice' * block.is_notice}>{escape(block.text)}</p>"
        case Table():
            return _html_table(block)
        case Figure():
            caption = f"<figcaption>{escape(block.caption)}</figcaption>"
            drawing = f'<div class=scroll role="img" aria-label="{escape(block.alt)}">{block.svg}</div>'
            return f"<figure>{drawing}{caption}</figure>"
        case Listing():
            items = (f"<li{' class=marked' * (i in block.marked)}>{escape(t)}</li>" for i, t in enumerate(block.items))
            return f"<ol>{''.join(items)}</ol>"
        case Fold():
            inner = "".join(map(_html, block.blocks))
            tags = "".join(f' data-{escape(name)}="{escape(value)}"' for name, value in block.tags.items())
            return f"<details{tags}><summary>{escape(block.summary)}</summary>{inner}</details>"
        case Browser():
            tags = " ".join(dict.fromkeys(name for entry in block.entries for name in entry.tags))
            return f'<div class=browser data-by="{escape(tags)}">{"".join(map(_html, block.entries))}</div>'


def _digest(script: str) -> str:
    """A script's name in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _html_table(table: Table) -> str:
    numeric = _numeric(table)
    head = "".join(
        f'<th scope="col"{" class=n" * (column in numeric)}>{escape(name)}</th>'
        for column, name in enumerate(table.headers)
    )
    body = []
    for place, (name, *cells) in enumerate(table.rows):
        values = "".join(
            f"<td{' class=n' * (column in numeric)}>{escape(cell)}</td>" for column, cell in enumerate(cells, start=1)
        )
        strong = " class=strong" * (place in table.emphasis)
        address = f' id="{anchor_of(name)}"' * table.is_anchored
        body.append(f'<tr{address}{strong}><th scope="row">{_linked(table, name)}</th>{values}</tr>')
    return (
        f'<div class=scroll tabindex="0" role="region" aria-label="{escape(table.caption)}"><table>'
        f"<caption><span>{escape(table.caption)}</span></caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        + (f"<p class=origin>{_origin_html(table.origin)}</p>" if table.origin else "")
    )


def _linked(table: Table, name: str) -> str:
    address = table.links.get(name)
    return escape(name) if address is None else f'<a href="{escape(address)}">{escape(name)}</a>'


def _origin_html(origin: str) -> str:
    """How a reader traces a table's figures."""
    file, made = f"{ROOT}{origin}", f"{LINEAGE}#{anchor_of(origin)}"
    return (
        f'From <a href="{escape(file)}">{escape(origin)}</a>; the way back: <a href="{escape(made)}">what made it</a>, '
        f"or pathfinder lineage up {escape(origin)}"
    )


def _numeric(table: Table) -> frozenset[int]:
    """The columns that hold figures alone; they stand to the right."""
    columns = range(1, len(table.headers))
    return frozenset(column for column in columns if all(_NUMBER.match(row[column]) for row in table.rows))


def _markdown(block: Block) -> str:
    match block:
        case Text():
            return f"> **{_md(block.text)}**" if block.is_notice else _md(block.text)
        case Table():
            numeric = _numeric(block)
            rule = ["---:" if column in numeric else "---" for column in range(len(block.headers))]
            lines = ["| " + " | ".join(map(_md, block.headers)) + " |", "| " + " | ".join(rule) + " |"]
            lines += ["| " + " | ".join(map(_md, row)) + " |" for row in block.rows]
            file = _md(block.origin)
            origin = f"\n\nFrom {file}; the way back: pathfinder lineage up {file}" if block.origin else ""
            return f"**{_md(block.caption)}**\n\n" + "\n".join(lines) + origin
        case Figure():
            return f"_{_md(block.caption)}_ {_md(block.alt)}"
        case Listing():
            return "\n".join(
                f"{i}. {'➤ ' * (i - 1 in block.marked)}{_md(t)}" for i, t in enumerate(block.items, start=1)
            )
        case Fold():
            return "\n\n".join([f"**{_md(block.summary)}**", *map(_markdown, block.blocks)])
        case Browser():
            return "\n\n".join(map(_markdown, block.entries))


def _md(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(visible(text).split()))


SCRIPT = """
for(const box of document.querySelectorAll('.browser')){
const entries=[...box.querySelectorAll(':scope>details')],bar=document.createElement('form'),tests=[];
bar.className='filters';bar.onsubmit=()=>false;
const count=document.createElement('output');
const show=()=>{let n=0;for(const e of entries){e.hidden=!tests.every(t=>t(e));n+=!e.hidden}
count.textContent=n+' of '+entries.length};
const add=(name,control)=>{const label=document.createElement('label');label.append(name+' ',control);
bar.append(label);control.oninput=show};
for(const tag of box.dataset.by.split(' ')){
const select=document.createElement('select');select.add(new Option('all',''));
for(const value of [...new Set(entries.map(e=>e.dataset[tag]))].sort())select.add(new Option(value,value));
tests.push(e=>!select.value||e.dataset[tag]===select.value);add(tag,select)}
const words=document.createElement('input');words.type='search';
tests.push(e=>e.textContent.toLowerCase().includes(words.value.toLowerCase()));add('words',words);
bar.append(count);box.prepend(bar);show()}
"""

PALETTE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#57606a;--line:#d0d7de;--soft:#f3f5f8;--warn:#fff4d6;
--warnline:#b7791f;--c0:#1f5fbf;--c1:#b8410f;--c2:#1b7f4b;--c3:#7a3db8;--c4:#8a6100;--c5:#0f6d7a;--bad:#b42318}
@media (prefers-color-scheme:dark){:root{--bg:#14171c;--fg:#e6e9ee;--dim:#a3adb9;--line:#3a424d;--soft:#1d222a;
--warn:#3a2f12;--warnline:#d9a441;--c0:#7db0ff;--c1:#ff9d6e;--c2:#6fd69b;--c3:#c99cff;--c4:#e3c15c;--c5:#6fd0de;--bad:#ff8a7d}}
"""
"""Colours by name, light and dark; drawings that stand alone have them too."""
STYLE = (
    PALETTE
    + """*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:72rem;margin:0 auto;padding:1rem}
h1{font-size:1.7rem;line-height:1.2}h2{margin-top:2.2rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
nav ul{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0}a{color:var(--c0)}
p{max-width:46rem;overflow-wrap:anywhere}.notice{
background:var(--warn);border-left:.3rem solid var(--warnline);padding:.6rem .8rem}
.scroll{overflow-x:auto;margin:.8rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding:.3rem 0}
caption span{display:block;position:sticky;left:0;max-width:min(46rem,calc(100vw - 2rem))}
details caption span{max-width:min(44rem,calc(100vw - 3.8rem))}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;font-weight:400}
thead th{background:var(--soft);font-weight:600}td.n{text-align:right;white-space:nowrap}
thead th.n{text-align:right}
.strong th,.strong td{font-weight:600}
.origin{color:var(--dim);font-size:.85rem;margin-top:-.4rem}
.filters{display:flex;flex-wrap:wrap;gap:.4rem 1rem;align-items:center;margin:.6rem 0}
.filters select,.filters input{font:inherit;max-width:12rem;color:var(--fg);background:var(--bg);
border:1px solid var(--line);border-radius:.3rem;padding:.15rem .3rem}details[hidden]{display:none}
figure{margin:1rem 0}figcaption{color:var(--dim);font-size:.9rem}
svg{width:100%;max-width:46rem;height:auto;min-width:32rem;display:block}
td:not(.n):last-child{min-width:10rem}th[scope=row]{min-width:9rem}
svg.flow{min-width:21rem;max-width:36rem}svg.narrow{min-width:18rem;max-width:30rem}svg .name{font-weight:600}
svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg .dim{fill:var(--dim)}
details{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .8rem;margin:.5rem 0}
summary{cursor:pointer;overflow-wrap:anywhere}
ol{padding-left:1.6rem;overflow-wrap:anywhere}li.marked{color:var(--bad);font-weight:600}
@media (max-width:40rem){body{font-size:15px}th,td{padding:.2rem .4rem}}
@media print{svg{min-width:0}body{font-size:10pt}main{max-width:none;padding:0}nav,.filters{display:none}
tr,figure{break-inside:avoid}thead{display:table-header-group}h2,summary,caption{break-after:avoid}.scroll{overflow:visible}details>*{display:block}details::details-content{content-visibility:visible;display:block;block-size:auto}}
"""
)
