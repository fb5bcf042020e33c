"""One picture as SVG text: elements are added from back to front, all text is escaped."""

import html

WIDTH = 480
PAD = 14  # Around a picture that is a file of its own.


def escape(text):
    return html.escape(str(text), quote=True)


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Svg:
    """A picture of WIDTH by `height`, which takes the width of what it is in. Programs read `title` and `description` out to
    those who do not see it. On a page `heading` is written above it."""

    def __init__(self, height, title, description, heading):
        self.height = height
        self.title, self.description, self.heading = title, description, heading
        self.parts = []

    def element(self, name, text=None, **attributes):
        texts = [
            f' {key.strip("_").replace("_", "-")}="{number(value) if isinstance(value, (int, float)) else escape(value)}"'
            for key, value in attributes.items()
        ]
        self.parts.append(f"<{name}{''.join(texts)}" + ("/>" if text is None else f">{escape(text)}</{name}>"))

    def line(self, x1, y1, x2, y2, kind):
        self.element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)

    def text(self, x, y, text, kind="", anchor="start"):
        self.element("text", text, x=x, y=y, class_=kind, text_anchor=anchor)

    def rect(self, x, y, width, height, kind):
        self.element("rect", x=x, y=y, width=width, height=height, class_=kind)

    def path(self, points, kind, closed=False):
        steps = " ".join(f"{'L' if i else 'M'}{number(x)} {number(y)}" for i, (x, y) in enumerate(points))
        self.element("path", d=steps + ("Z" if closed else ""), class_=kind)

    def mark(self, x, y, shape, kind="dot", size=4):
        """`shape`: circle, square, diamond, up, down."""
        if shape == "circle":
            self.element("circle", cx=x, cy=y, r=size, class_=kind)
            return
        wide = size * 1.2
        corners = {
            "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
            "diamond": [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)],
            "up": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
            "down": [(0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
        }[shape]
        scale = wide * 0.8
        self.path([(x + scale * dx, y + scale * dy) for dx, dy in corners], kind, closed=True)

    def begin(self, kind):
        self.parts.append(f'<g class="{escape(kind)}">')

    def end(self):
        self.parts.append("</g>")

    def render(self, css=""):
        """`css` makes it a file of its own, whose heading is its title."""
        style = f"<style>{css}</style>" if css else ""
        pad = PAD if css else 0
        box = f"{-pad} {-pad} {WIDTH + 2 * pad} {number(self.height + 2 * pad)}"
        heading = f'<text x="0" y="14" class="heading">{escape(self.title if css else self.heading)}</text>'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img"'
            f' aria-label="{escape(self.title)}">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>{style}{heading}"
            + "".join(self.parts)
            + "</svg>"
        )
