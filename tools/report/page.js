"use strict";
// How the page's picture and tables answer. What they show comes from the picture's titles and from the
// element #data, and goes into the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const panel = document.getElementById("panel");
  const picture = document.querySelector(".picture");
  const make = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    return made;
  };
  const show = (...parts) => panel.replaceChildren(...parts);
  const hint = () => show(make("h3", "The machine"),
    make("p", "Point at a box or a line: what is known of it, and where that comes from.", "soft"),
    make("p", "Choose two boxes: the best path between them, link by link.", "soft"));

  // A shape's title has all that is known of it; the first line is the name of a node, or "a - b".
  const nodes = new Map(), links = new Map();
  let rest = {};  // Where the pointer was last.
  for (const what of ["pointermove", "pointerup"])
    document.addEventListener(what, event => { rest = { screenX: event.screenX, screenY: event.screenY }; }, true);
  if (picture) {
    for (const title of picture.querySelectorAll("title")) {
      const shape = title.parentElement, lines = title.textContent.split("\n");
      title.remove();
      if (lines[0] === "") continue;
      shape.dataset.name = lines[0];
      shape.facts = lines;
      (shape.localName === "path" ? links : nodes).set(lines[0], shape);
      shape.addEventListener("pointerenter", event => {
        // A page that scrolls below a pointer that rests shows nothing new.
        if (Math.abs(event.screenX - rest.screenX) < 1 && Math.abs(event.screenY - rest.screenY) < 1) return;
        shape.classList.add("at");
        tell(lines);
      });
      shape.addEventListener("pointerleave", () => { shape.classList.remove("at"); settle(); });
      if (shape.localName === "path") continue;
      shape.tabIndex = 0;
      shape.setAttribute("role", "button");
      shape.setAttribute("aria-label", lines.join(", "));
      shape.addEventListener("click", () => choose(lines[0]));
      shape.addEventListener("keydown", event => { if (event.key === "Enter") choose(lines[0]); });
    }
  }
  const tell = lines => show(make("h3", lines[0]), ...lines.slice(1).map(line => make("p", line)));
  const short = name => data.hosts === 1 ? name.replace(/^host0\//, "") : name;
  const link = (a, b) => links.get(a + " - " + b) || links.get(b + " - " + a);
  const mark = (shape, kind) => { if (shape) shape.classList.add(kind); };

  let chosen = [];
  const settle = () => {
    if (chosen.length === 2) return tellPath(...chosen);
    if (chosen.length === 1) return tell(nodes.get(chosen[0])?.facts ?? chosen);
    hint();
  };
  const choose = name => {
    for (const shape of [...nodes.values(), ...links.values()]) shape.classList.remove("picked", "way");
    chosen = chosen.length === 1 && chosen[0] !== name ? [chosen[0], name] : [name];
    for (const one of chosen) mark(nodes.get(one), "picked");
    if (chosen.length === 2) markPath(...chosen);
    settle();
  };
  const pathOf = (from, to) => data.paths[from]?.[to];
  const markPath = (from, to) => {
    const path = pathOf(from, to);
    if (path) path.nodes.slice(1).forEach((node, i) => mark(link(path.nodes[i], node), "way"));
  };
  const tellPath = (from, to) => {
    const path = pathOf(from, to), head = make("h3", short(from) + " to " + short(to));
    if (!path) return show(head, make("p", "No path is known between these.", "soft"));
    const steps = make("ol");
    path.links.forEach((one, i) => {
      const step = make("li", one.text + " to " + short(path.nodes[i + 1]) + ": " + one.rate + " (" + one.origin + ")");
      if (one.narrow) step.className = "narrow";
      steps.append(step);
    });
    show(head, make("p", path.type + ", " + path.rate + ": " + path.meaning), steps,
      make("p", "Bold: the narrowest link.", "soft"));
  };
  hint();

  for (const button of document.querySelectorAll("button[data-node]")) {
    button.addEventListener("click", () => {
      chosen = [];
      choose(button.dataset.node);
      picture?.scrollIntoView({ block: "nearest" });
    });
  }
})();
