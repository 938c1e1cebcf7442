// What runs now: asked of the page's server once a second. Names of jobs and programs go into the page as
// text, never as markup.
(() => {
  const box = document.getElementById("live"), seen = document.getElementById("seen");
  const kEvery = 1000, kSlower = 3000, kPatience = 10000;  // Milliseconds.
  const kDrawn = 64;                    // Ranks in a picture: see drawnOf.
  const kKept = 120;                    // Rates in a curve.
  const kLong = 1;                      // Seconds of waiting that are worth a warning.
  const make = (name, kind, ...parts) => {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    made.append(...parts);
    return made;
  };
  const draw = (name, attributes, ...parts) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...parts);
    return made;
  };
  const digits = (value, unit) => (value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1)
    : value.toPrecision(2)) + " " + unit;
  const inUnits = (value, units) => {
    let at = 0;
    while (value >= 1000 && at + 1 < units.length) { value /= 1000; ++at; }
    return value === 0 ? "0 " + units[0] : digits(value, units[at]);
  };
  const bytesText = rate => inUnits(rate, ["B/s", "KB/s", "MB/s", "GB/s", "TB/s"]);
  const callsText = rate => inUnits(rate, ["calls/s", "thousand calls/s", "million calls/s"]);
  const timeText = seconds => inUnits(seconds * 1e9, ["ns", "us", "ms", "s"]);
  const plural = (count, word) => count + " " + word + (count === 1 ? "" : "s");

  // By communicator: what was read last, rank by rank, and the rates since.
  const histories = new Map();
  const addRates = (comm, at) => {
    const before = histories.get(comm.communicator) ?? { at: 0, totals: new Map(), curve: [] };
    const seconds = (at - before.at) / 1e9, totals = new Map();
    let bytes = 0, calls = 0, known = 0;
    for (const rank of comm.here) {
      const now = { calls: rank.totals.calls + rank.totals.messages,
                    bytes: rank.totals.bytes + rank.totals.message_bytes };
      totals.set(rank.rank, now);
      const then = before.totals.get(rank.rank);
      if (!then || seconds <= 0) continue;
      rank.rates = { calls: Math.max(0, now.calls - then.calls) / seconds,
                     bytes: Math.max(0, now.bytes - then.bytes) / seconds };
      calls += rank.rates.calls;
      bytes += rank.rates.bytes;
      ++known;
    }
    if (known > 0) {
      comm.rates = { calls: calls / known, bytes: bytes / known };
      before.curve.push(comm.rates.bytes);
      if (before.curve.length > kKept) before.curve.shift();
    }
    comm.curve = before.curve;
    histories.set(comm.communicator, { at, totals, curve: before.curve });
  };

  const kinds = [["waits", "waits for another"], ["calls", "in a call"], ["idle", "in none"], ["stopped", "stopped"]];
  // Ranks wait in each call, for a moment.
  const isHeldUp = comm => comm.blocker !== undefined && comm.waited_s >= kLong;
  const isBlocker = (comm, rank) => isHeldUp(comm) && rank.rank === comm.blocker;
  const kindOf = rank => rank.stopped ? "stopped" : rank.waits_for !== undefined ? "waits"
    : rank.in_call ? "calls" : "idle";
  // Of many ranks the one that is to blame and those that wait one for another, then the lowest.
  const drawnOf = comm => {
    const first = new Set([comm.blocker, ...(comm.chain ?? [])]);
    const weight = rank => (first.has(rank.rank) ? 0 : 1);
    return [...comm.here].sort((a, b) => weight(a) - weight(b) || a.rank - b.rank).slice(0, kDrawn)
      .sort((a, b) => a.rank - b.rank);
  };
  const picture = comm => {
    const ranks = drawnOf(comm), radius = 100, size = Math.min(15, 240 / Math.max(ranks.length, 1));
    const places = new Map(ranks.map((rank, i) => {
      const turn = 2 * Math.PI * i / ranks.length - Math.PI / 2;
      return [rank.rank, { x: 130 + radius * Math.cos(turn), y: 130 + radius * Math.sin(turn) }];
    }));
    const lines = [], circles = [];
    for (const rank of ranks) {
      const from = places.get(rank.rank), to = places.get(rank.waits_for);
      const title = "rank " + rank.rank + ": " + rank.state + (rank.what ? "\n" + rank.what : "");
      circles.push(draw("g", { class: "rank " + kindOf(rank) + (isBlocker(comm, rank) ? " blocker" : ""),
                               "data-rank": rank.rank },
        draw("title", {}, title), draw("circle", { cx: from.x, cy: from.y, r: size }),
        ...(size < 7 ? [] : [draw("text", { x: from.x, y: from.y + 4 }, String(rank.rank))])));
      if (!to || to === from) continue;
      const length = Math.hypot(to.x - from.x, to.y - from.y), part = size / length, tip = (size + 6) / length;
      lines.push(draw("line", { class: "wait", "marker-end": "url(#tip)",
        x1: from.x + (to.x - from.x) * part, y1: from.y + (to.y - from.y) * part,
        x2: to.x - (to.x - from.x) * tip, y2: to.y - (to.y - from.y) * tip }));
    }
    const svg = draw("svg", { viewBox: "0 0 260 260", class: "ring", role: "img",
                              "aria-label": comm.sentence ?? "no rank waits for another" },
      draw("defs", {}, draw("marker", { id: "tip", markerWidth: 7, markerHeight: 7, refX: 3, refY: 3.5, orient: "auto" },
        draw("path", { d: "M0,0 L7,3.5 L0,7 z", class: "tip" }))), ...lines, ...circles);
    const legend = make("p", "legend", ...kinds.flatMap(([kind, words]) =>
      [make("span", "", make("span", "key " + kind), words), " "]));
    const rest = comm.here.length - ranks.length;
    return make("div", "drawn", svg, legend, ...(rest > 0 ? [make("p", "soft", "and " + plural(rest, "more rank"))] : []));
  };

  const curve = values => {
    const most = Math.max(...values, 1), wide = 240, high = 44;
    const points = values.map((value, i) =>
      (wide * (i + kKept - values.length) / (kKept - 1)).toFixed(1) + "," + (high - 3 - (high - 6) * value / most).toFixed(1));
    return draw("svg", { viewBox: `0 0 ${wide} ${high}`, class: "curve", role: "img",
                         "aria-label": "rates, a second apart" },
      draw("title", {}, "the last " + kKept + " looks, a second apart; at most " + bytesText(most)),
      draw("polyline", { points: points.join(" ") }));
  };

  const row = (kind, ...cells) => make("tr", kind, ...cells);
  const cell = (text, kind) => make("td", kind, text);
  const heads = (...names) => row("", ...names.map(name => make("th", name.endsWith("#") ? "number" : "", name.replace("#", ""))));
  const rankTable = comm => make("table", "ranks",
    heads("rank#", "process", "call#", "operation", "state", "call rate#", "data rate#"),
    ...comm.here.map(rank => row(isBlocker(comm, rank) ? "blocker" : "",
      cell(rank.rank, "number"), cell(rank.pid + " " + rank.program), cell(rank.call, "number"), cell(rank.what),
      cell(rank.state, "state " + kindOf(rank)), cell(rank.rates ? callsText(rank.rates.calls) : "", "number"),
      cell(rank.rates ? bytesText(rank.rates.bytes) : "", "number"))));
  const lateTable = comm => {
    const late = (comm.late ?? []).filter(one => one.share >= 0.01).sort((a, b) => b.share - a.share).slice(0, 8);
    if (late.length === 0) return [];
    return [make("table", "late",
      heads("late: rank#", "of the time lost", "came last to#", "behind the first, median#", "p99#"),
      ...late.map(one => {
        const bar = make("span", "bar");
        bar.style.width = (100 * one.share).toFixed(0) + "px";
        return row("", cell(one.rank, "number"), make("td", "", bar, (100 * one.share).toFixed(0) + " %"),
          cell((100 * one.calls / comm.timed_calls).toFixed(0) + " %", "number"),
          cell(timeText(one.median_s), "number"), cell(timeText(one.p99_s), "number"));
      }))];
  };
  const card = comm => {
    const head = (comm.job ? "job " + comm.job + ": " : "") + plural(comm.ranks, "rank") + " on " + comm.host + " by " +
      comm.transport + (comm.here.length < comm.ranks ? ", " + comm.here.length + " of them here" : "");
    const rates = make("p", "rates", comm.rates ? callsText(comm.rates.calls) + ", " +
      bytesText(comm.rates.bytes) + " a rank" : "Rates appear after one second.");
    const chain = (comm.chain ?? []).length > 2 ? [make("p", "soft", "chain of waits: " + comm.chain.join(" \u2192 "))] : [];
    const words = make("div", "words", rates, curve(comm.curve),
      make("p", isHeldUp(comm) ? "sentence" : "soft", comm.sentence ?? "No rank waits for another."), ...chain);
    const made = make("section", "comm", make("h3", "", head), make("div", "two", picture(comm), words), rankTable(comm),
      ...lateTable(comm));
    made.dataset.communicator = comm.communicator;
    return made;
  };

  // A reader that points at something, or has chosen text, sees it stay.
  const isRead = () => box.querySelector("g:hover") !== null ||
    (getSelection()?.isCollapsed === false && box.contains(getSelection().anchorNode));
  let latest = null, asOf = "";
  const show = () => {
    if (latest === null || isRead()) return;
    const answer = latest;
    const there = new Set(answer.communicators.map(comm => comm.communicator));
    for (const name of histories.keys()) if (!there.has(name)) histories.delete(name);
    box.replaceChildren(...answer.communicators.map(card));
    if (there.size === 0) box.append(make("p", "", "No rank that can be seen here runs on this host."));
  };
  const look = async () => {
    let next = kEvery;
    try {
      const answer = await fetch("status", { cache: "no-store", signal: AbortSignal.timeout(kPatience) });
      if (!answer.ok) throw new Error("status " + answer.status);
      latest = await answer.json();
      for (const comm of latest.communicators) addRates(comm, latest.at_ns);
      asOf = "As of " + new Date().toLocaleTimeString() + ".";
      seen.textContent = asOf;
      box.classList.remove("old");
    } catch {
      seen.textContent = asOf + " tutti report --live has ended, or does not answer.";
      box.classList.add("old");
      next = kSlower;
    }
    setTimeout(look, next);
    show();
  };
  look();
})();
