"""Colours and letters of the page and its pictures, on a light and on a dark ground.

The colours of the systems are those of Okabe and Ito, which readers tell apart who do not see all colours, made lighter on a
dark ground; each system also has a mark of its own. Hawser's curve is the widest, and drawn last.
"""

LIGHT = {
    "ground": "#ffffff", "text": "#1b1f24", "quiet": "#59636e", "grid": "#e4e7eb", "axis": "#9aa4af",
    "panel": "#f6f8fa", "band": "#dcebf7", "behind": "#a8430b", "held": "#0b6b50",
    "hawser": "#0067a8", "raw": "#6b7280", "capnp_rpc": "#c2500a", "grpc": "#00805c", "thrift": "#a8518a",
}
DARK = {
    "ground": "#14181d", "text": "#e3e7ec", "quiet": "#9aa5b1", "grid": "#2a313a", "axis": "#596572",
    "panel": "#1b2027", "band": "#1c3547", "behind": "#f2a071", "held": "#5fd0a8",
    "hawser": "#58b4ee", "raw": "#98a2ae", "capnp_rpc": "#ef8d4f", "grpc": "#3dc49a", "thrift": "#dd93c4",
}

SERIES = ("hawser", "raw", "capnp_rpc", "grpc", "thrift")
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif"


def picture_css(theme):
    """Rules for what chart.py draws."""
    rules = [
        f"svg text{{font:12.5px {FONT};fill:{theme['text']}}}",
        f"svg .tick{{fill:{theme['quiet']};font-size:11.5px}}",
        f"svg .name{{fill:{theme['quiet']};font-size:11.5px;paint-order:stroke;stroke:{theme['ground']};stroke-width:4px}}",
        "svg .heading{font-weight:600;font-size:13px}",
        f"svg .grid{{stroke:{theme['grid']};stroke-width:1}}",
        f"svg .axis{{stroke:{theme['axis']};stroke-width:1}}",
        f"svg .band{{fill:{theme['band']}}}",
        f"svg .bound{{stroke:{theme['behind']};stroke-width:1.4;stroke-dasharray:5 3}}",
        f"svg .bound-text{{fill:{theme['behind']};font-size:11.5px}}",
        "svg .curve{fill:none;stroke-width:1.7;stroke-linejoin:round}",
        "svg .hawser .curve{stroke-width:3.2}",
        "svg .raw .curve{stroke-dasharray:5 3}",
        "svg .leader{fill:none;stroke-width:.7;opacity:.7}",
        "svg .span{stroke-width:2;opacity:.55}",
        "svg .hawser .span{stroke-width:4}",
        f"svg .hollow{{fill:{theme['ground']};stroke-width:1.8}}",
        "svg .hawser .label{font-weight:700}",
        "svg .second{opacity:.5}",
        "svg .area{opacity:.28;stroke:none}",
    ]
    for name in SERIES:
        colour = theme[name]
        rules += [
            f"svg .{name} .curve,svg .{name} .leader,svg .{name} .span,svg .{name} .hollow{{stroke:{colour}}}",
            f"svg .{name} .dot,svg .{name} .area,svg .{name} .label{{fill:{colour}}}",
        ]
    return "\n".join(rules)


def page_css(theme):
    return f"""\
body{{background:{theme['ground']};color:{theme['text']}}}
.quiet,th{{color:{theme['quiet']}}}
hr,h2,th,td,details{{border-color:{theme['grid']}}}
.sheet,pre{{background:{theme['panel']}}}
tr.hawser td{{color:{theme['hawser']};font-weight:600}}
a{{color:{theme['hawser']}}}
.behind b,.missed{{color:{theme['behind']}}}
.ahead b,.held{{color:{theme['held']}}}
{picture_css(theme)}"""


# What both grounds have in common.
LAYOUT = f"""\
:root{{color-scheme:light dark}}
*{{box-sizing:border-box}}
body{{margin:0;font:16px/1.5 {FONT};-webkit-text-size-adjust:100%}}
main{{max-width:1120px;margin:0 auto;padding:28px 20px 64px}}
h1{{font-size:30px;line-height:1.15;margin:0 0 6px;letter-spacing:-.01em}}
h2{{font-size:20px;line-height:1.25;margin:52px 0 14px;padding-top:14px;border-top:1px solid}}
h3{{font-size:16px;margin:22px 0 6px}}
p{{margin:0 0 10px;max-width:48em}}
p.small{{font-size:14px}}
p.quiet{{max-width:none}}
ul{{margin:0 0 10px;padding-left:1.15em;max-width:46em}}
li{{margin:0 0 5px;break-inside:avoid}}
ul.wide{{columns:2;column-gap:36px;max-width:none}}
a{{text-underline-offset:3px;text-decoration-thickness:1px}}
td a{{text-decoration-color:color-mix(in srgb,currentColor 35%,transparent)}}
figure{{margin:0}}
.panels{{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px 28px;align-items:start}}
.panels.one{{grid-template-columns:minmax(0,11fr) minmax(0,9fr)}}
.panels svg{{width:100%;height:auto;display:block}}
figcaption{{margin-top:10px}}
figcaption{{columns:2;column-gap:28px}}
figcaption p{{break-inside:avoid}}
.panels.one figcaption{{margin-top:24px;columns:1}}
.sheet{{border-radius:6px;padding:14px 18px;margin:18px 0}}
ul.failures{{max-width:none;font-size:14px}}
ul.failures li{{white-space:pre-line;overflow-wrap:anywhere}}
.facts{{columns:2;column-gap:36px;margin:0;font-size:13.5px}}
.facts div{{break-inside:avoid;display:grid;grid-template-columns:10.5em minmax(0,1fr);padding:1px 0}}
.facts dt{{font-weight:600}}
.facts dd{{margin:0;overflow-wrap:anywhere}}
.scroll{{overflow-x:auto;margin:14px 0 10px}}
table{{border-collapse:collapse;font-size:13.5px;line-height:1.35;font-variant-numeric:tabular-nums}}
th,td{{text-align:right;padding:3px 10px 3px 0;border-bottom:1px solid;vertical-align:top;white-space:nowrap}}
th{{font-weight:600}}
th.text,td.text{{text-align:left}}
td.wrap{{white-space:normal;min-width:14em}}
details{{margin:12px 0 0}}
summary{{cursor:pointer;font-weight:600;font-size:14.5px}}
pre{{padding:10px 14px;border-radius:6px;overflow-x:auto;font-size:13.5px;line-height:1.45;margin:8px 0;white-space:pre-wrap;
overflow-wrap:anywhere}}
nav{{font-size:14px;margin:10px 0 0}}
nav a{{margin-right:12px;display:inline-block}}
@media(max-width:760px){{
main{{padding:18px 14px 48px}}
h1{{font-size:25px}}
.panels,.panels.one{{grid-template-columns:minmax(0,1fr)}}
.panels.one figcaption{{margin-top:8px}}
figcaption{{columns:1}}
.facts,ul.wide{{columns:1}}
.facts div{{grid-template-columns:8.5em minmax(0,1fr)}}
}}
@media print{{details>*{{display:block}}h2{{break-after:avoid}}figure{{break-inside:avoid}}}}
"""


# Behind the rest: on a telephone pictures are small, so their letters are larger.
NARROW = """\
@media(max-width:760px){svg text{font-size:14.5px}svg .tick,svg .name,svg .bound-text{font-size:13.5px}svg .heading{font-size:15px}}
"""


def stylesheet():
    return f"{LAYOUT}{page_css(LIGHT)}\n@media(prefers-color-scheme:dark){{\n{page_css(DARK)}\n}}\n{NARROW}"
