"""The page: one HTML file without scripts and without anything that it would have to fetch."""

import bounds as project
import compare
import look
import words
from svg import escape

# Titles of pictures say the other kinds.
OF_KIND = {"time": " (median)", "rate": "", "bytes": "", "cpu": "", "p99": " (p99)"}
CLASS_OF_BOUND = {"held": "ahead", "missed": "behind", "partial": "level"}
LETTERS = {"behind": "Behind", "ahead": "Ahead", "level": "Level", "floor": "Floor"}
BUSY_SHARE_MAX = 0.2
STOLEN_SHARE_MAX = 0.02
PROMINENT = ("Hawser", "adaptive")
ROWS_SHOWN = 8  # A table that is longer is folded.


def tag(name, content, **attributes):
    texts = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{texts}>{content}</{name}>"


def table(columns, rows, text_columns=2):
    """`rows`: texts, which are escaped here. Those of Hawser, or of the mode that it ships with, are prominent among others."""
    others = any(row[0] not in PROMINENT for row in rows)
    cell = lambda name, i, text: tag(name, escape(text), **({"class": "text"} if i < text_columns else {}))
    head = tag("tr", "".join(cell("th", i, text) for i, text in enumerate(columns)))
    body = "".join(
        tag("tr", "".join(cell("td", i, text) for i, text in enumerate(row)),
            **({"class": "hawser"} if others and row[0] in PROMINENT else {}))
        for row in rows
    )
    inner = tag("table", f"<thead>{head}</thead><tbody>{body}</tbody>")
    return tag("div", inner, **{"class": "scroll", "tabindex": "0"})


def sentences_list(sentences, bounds):
    items = [
        tag("li", f"{tag('b', f'Bound {each.word}:')} {escape(each.rule)} {escape(each.text)}",
            **{"class": CLASS_OF_BOUND[each.verdict]})
        for each in bounds
    ]
    items += [
        tag("li", f"{tag('b', LETTERS[each.verdict] + ':')} {escape(each.text)}", **{"class": each.verdict})
        for each in sentences
    ]
    return tag("ul", "\n".join(items), **{"class": "said"}) if items else ""


def figure(picture, index, bounds):
    heading = tag("h2", f"{index}. {escape(picture.title)}", id=picture.key)
    if picture.empty:
        notes = "".join(tag("p", escape(note)) for note in picture.notes)
        return f"{heading}{tag('p', 'No figures: the programs that measure this failed or were left out.')}{notes}"
    said = sentences_list(compare.sentences(picture.comparisons), [each for each in bounds if each.picture == picture.key])
    notes = "".join(tag("p", escape(note)) for note in picture.notes)
    caption = tag("figcaption", tag("p", escape(picture.reading)) + said + notes)
    charts = "\n".join(chart.render() for chart in picture.charts)
    all_figures = table(picture.columns, picture.rows)
    if len(picture.rows) > ROWS_SHOWN:
        summary = f"All figures: {words.plural(len(picture.rows), 'row')}"
        all_figures = f"<details>{tag('summary', summary)}{all_figures}</details>"
    if len(picture.charts) == 1:
        body = tag("div", f"{tag('div', charts)}{caption}", **{"class": "panels one"})
    else:
        body = tag("div", charts, **{"class": "panels"}) + caption
    return f"{heading}\n{tag('figure', body)}\n{all_figures}"


def bounds_part(bounds, numbers):
    rows = []
    for bound in bounds:
        word = tag("b", bound.word, **{"class": bound.verdict})
        link = tag("a", "picture " + str(numbers[bound.picture]), href="#" + bound.picture)
        rows.append(tag("li", f"{word}: {escape(bound.rule)} {escape(bound.text)} ({link})"))
    if not rows:
        return tag("p", "Hawser's own benchmarks gave no figures to hold the project's bounds against.")
    missing = len(project.ALL) - len(rows)
    if missing:
        rows.append(tag("li", f"{words.plural(missing, 'other bound')} {words.was(missing)} not measured."))
    return tag("ul", "\n".join(rows))


def where_of(comparison, titles):
    title = titles[comparison.picture] + OF_KIND[comparison.kind]
    return f"{title}: {comparison.where}" if comparison.where else title


def nothing_compared(results):
    """Why Hawser is compared with no other system. Programs that failed are named below it."""
    measured = results.systems()
    if "hawser" not in measured:
        return "Nothing was compared: Hawser was not measured."
    if measured == ["hawser"]:
        return "Nothing was compared: no other system was measured."
    return "Nothing was compared: no other system was measured where Hawser was."


def standings_part(comparisons, titles, results):
    rows = []
    for each in compare.standings(comparisons):
        rows.append(
            "<tr>"
            + tag("td", escape(words.system(each.system)), **{"class": "text"})
            + tag("td", f"{each.behind} of {each.points}")
            + tag("td", "–" if each.system in words.FLOORS else str(each.level))
            + tag("td", tag("b", words.ratio(each.worst.cost)), **({"class": "missed"} if each.worst.behind else {}))
            + tag("td", words.ratio(each.middle))
            + tag("td", tag("b", words.ratio(each.best.cost)))
            + tag("td", link_to(each.worst, titles), **{"class": "text wrap"})
            + tag("td", link_to(each.best, titles), **{"class": "text wrap"})
            + "</tr>"
        )
    if not rows:
        return tag("p", nothing_compared(results))
    head = (
        '<tr><th class="text">beside</th><th>behind</th><th>level</th><th>worst</th><th>middle</th><th>best</th>'
        '<th class="text">the worst is</th><th class="text">the best is</th></tr>'
    )
    how = tag(
        "p",
        "Cost of Hawser divided by that of the other: of time, or of calls or bytes a second the other way round, and rounded "
        "to two decimals. Above 1 Hawser is behind, at 1.00 level, below 1 ahead. Beside the raw socket, the floor, it is behind "
        f"above {words.ratio(compare.FLOOR_RATIO_MAX)}.",
        **{"class": "quiet small"},
    )
    inner = tag("table", f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody>")
    return how + tag("div", inner, **{"class": "scroll", "tabindex": "0"})


def link_to(comparison, titles):
    return tag("a", escape(where_of(comparison, titles)), href="#" + comparison.picture)


def behind_part(comparisons, titles, results):
    behind = [each for each in compare.sentences(comparisons) if each.verdict == "behind"]
    if not behind and not any(each.system in words.SYSTEMS for each in comparisons):
        return tag("p", nothing_compared(results))
    if not behind:
        return tag("p", "No figure of Hawser is behind another system, or further above the floor than its bound.")
    items = [
        tag("li", f"{tag('a', escape(titles[each.picture]), href='#' + each.picture)}: {escape(each.text)}",
            **{"class": "behind"})
        for each in behind
    ]
    return tag("ul", "\n".join(items), **{"class": "wide"})


def range_text(comparisons):
    low, high = (words.ratio(pick(each.cost for each in comparisons)) for pick in (min, max))
    return low if low == high else f"{low} – {high}"


def matrix_part(comparisons, titles):
    """Cost of Hawser by picture and system: a figure that is behind is as prominent as one that is ahead."""
    comparisons = [each for each in comparisons if each.system in words.SYSTEMS]
    systems = [group[0].system for group in compare.parts(comparisons, "system")]
    rows = []
    for picture in compare.parts(comparisons, "picture"):
        for kind in compare.parts(picture, "kind"):
            cells = []
            for system in systems:
                here = [each for each in kind if each.system == system]
                late = {"class": "missed"} if any(each.behind for each in here) else {}
                cells.append(tag("td", range_text(here) if here else "–", **late))
            key = kind[0].picture
            name = f"{tag('a', escape(titles[key]), href='#' + key)}{escape(OF_KIND[kind[0].kind])}"
            rows.append(tag("tr", tag("td", name, **{"class": "text"}) + "".join(cells)))
    if not rows:
        return ""
    head = '<tr><th class="text">lowest – highest cost, by picture</th>' + "".join(
        tag("th", escape(words.system(system))) for system in systems
    )
    inner = tag("table", f"<thead>{head}</tr></thead><tbody>{''.join(rows)}</tbody>")
    return tag("div", inner, **{"class": "scroll", "tabindex": "0"})


def noise_part(results):
    """Says it where the figures are worth little."""
    texts = []
    if results.busy_before > BUSY_SHARE_MAX:
        texts.append(
            f"Other programs used {results.busy_before:.0%} of the cores just before: these figures are worth little. Repeat them "
            "on a machine that does nothing else."
        )
    if results.stolen > STOLEN_SHARE_MAX:
        texts.append(
            f"The hypervisor gave {results.stolen:.0%} of the cores to other guests meanwhile: 99th percentiles say more about "
            "these than about any system here."
        )
    if results.about.get("left out"):
        texts.append(results.about["left out"])
    return "".join(tag("p", tag("b", "Note: ") + escape(text), **{"class": "behind"}) for text in texts)


def failures_part(results):
    if not results.failures:
        return ""
    items = [tag("li", f"{tag('b', escape(each.get('program')))}: {escape(each.get('text'))}") for each in results.failures]
    lead = tag("p", f"{words.plural(len(items), 'run')} of a program failed; the rest went on without its figures.")
    return tag("h3", "What failed") + lead + tag("ul", "\n".join(items), **{"class": "failures"})


def absent_part(results):
    items = [tag("li", f"{tag('b', escape(words.system(name)))}: {escape(why)}") for name, why in results.absent.items()]
    items += [
        tag("li", f"{tag('b', escape(words.system(system)))} leaves out {', '.join(map(escape, points))}: {escape(why)}")
        for (system, why), points in results.skipped().items()
    ]
    return tag("h3", "What is not here") + tag("ul", "\n".join(items)) if items else ""


def facts_part(results):
    shown = {name: value for name, value in results.about.items() if name not in ("left out", "when", "repeat")}
    shown |= {words.system(name): version for name, version in results.versions.items()}
    shown["measured"] = (
        f"{words.plural(results.rounds, 'round')}, in each of them the systems in turn, at least {results.point_seconds:g} s a point"
        + ("; figures are medians over the rounds" if results.rounds > 1 else "")
    )
    shown["other programs"] = f"{results.busy_before:.0%} of the cores just before"
    shown["other guests"] = f"{results.stolen:.1%} of the cores meanwhile (steal)"
    items = "".join(tag("div", tag("dt", escape(name)) + tag("dd", escape(value))) for name, value in shown.items())
    return tag("dl", items, **{"class": "facts"})


def repeat_part(results):
    commands = results.about.get("repeat", "./bazelw run //bench:report")
    return (
        tag("h2", "How to repeat it", id="repeat")
        + tag("pre", escape(commands))
        + tag("p", "Both sides of each system run on this machine and talk over its loopback interface, so these figures say "
              "nothing about a network or an RDMA device. A client calls from one thread. Virtual machines are noisy: compare "
              "ratios of one report, not figures of two, and look at the rounds' lowest and highest in the tables.")
        + tag("p", "How each system is configured: bench/peers/README.md. The server of Cap'n Proto RPC copies large payloads "
              "into its reply.")
        + tag("p", "The raw socket is the floor: the same bytes over TCP with nothing in between, no framing, no deadline, no "
              "answer for a peer that vanishes. It sleeps in the kernel while it waits, so a system that spins may be faster.")
    )


def page(results, pictures):
    titles = {picture.key: picture.title for picture in pictures}
    comparisons = [each for picture in pictures for each in picture.comparisons]
    bounds = project.bounds(results)
    links = "".join(
        tag("a", f"{i}. {escape(picture.title)}", href="#" + picture.key) for i, picture in enumerate(pictures, 1)
    )
    measured = words.listed(words.the(name) for name in results.systems()) or "no system"
    body = [
        tag("h1", "Hawser, measured beside others"),
        tag("p", f"{escape(results.about.get('when', ''))} · {escape(results.mode)} run · {escape(measured)} on one machine",
            **{"class": "quiet"}),
        tag("div", facts_part(results), **{"class": "sheet"}),
        tag("nav", links),
        tag("h2", "Summary", id="summary"),
        noise_part(results),
        tag("h3", "The project's own bounds"), bounds_part(bounds, {picture.key: i for i, picture in enumerate(pictures, 1)}),
        tag("h3", "Beside each system"), standings_part(comparisons, titles, results), matrix_part(comparisons, titles),
        tag("h3", "What is behind"), behind_part(comparisons, titles, results),
        failures_part(results), absent_part(results),
        *(figure(picture, i, bounds) for i, picture in enumerate(pictures, 1)),
        repeat_part(results),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Hawser, measured beside others</title>\n'
        f"<style>\n{look.stylesheet()}</style></head>\n<body><main>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )
