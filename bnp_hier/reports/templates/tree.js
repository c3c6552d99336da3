// Trees that are opened, searched and zoomed. Items have numbers from 0; the inner node i has the number -1 - i.
function browsable(frame) {
  const tree = JSON.parse(frame.querySelector("script").textContent);
  const n = tree.names.length, m = tree.parents.length, colors = 9, few = 40, most = 10000;
  const view = frame.querySelector(".view"), svg = frame.querySelector("svg"), tip = frame.querySelector(".tip");
  const search = frame.querySelector("input"), status = frame.querySelector("output");
  const text = new Intl.NumberFormat("en"), coarse = matchMedia("(pointer: coarse)").matches, step = coarse ? 28 : 20;
  const open = new Uint8Array(m), inner = Array.from({ length: m }, () => []);
  for (let i = 1; i < m; i++) inner[tree.parents[i]].push(i);
  const changes = new Int32Array(n + 1); // positions where the cluster changes, to see whether a node is in one cluster
  for (let p = 1; p <= n; p++) changes[p] = changes[p - 1] + (p < n && tree.clusters[p] !== tree.clusters[p - 1] ? 1 : 0);
  const single = (i) => changes[tree.first[i] + tree.sizes[i] - 1] === changes[tree.first[i]];
  let focused = m ? -1 : 0, zoom = 1, found = [], marked = new Set(), at = -1, shown = [], width = 0, height = 0;

  // ---- what is visible
  function children(i) {
    const all = [], end = tree.first[i] + tree.sizes[i];
    let p = tree.first[i];
    for (const child of inner[i]) {
      while (p < tree.first[child]) all.push(p++);
      all.push(-1 - child);
      p += tree.sizes[child];
    }
    while (p < end) all.push(p++);
    return all;
  }
  function openLargest(rows) { // nodes of several clusters first, then the largest
    const waiting = m ? [0] : [];
    let now = 1;
    while (waiting.length && now < rows) {
      let best = 0;
      waiting.forEach((i, k) => {
        const j = waiting[best];
        if (single(i) - single(j) < 0 || (single(i) === single(j) && tree.sizes[i] > tree.sizes[j])) best = k;
      });
      const [i] = waiting.splice(best, 1);
      open[i] = 1;
      now += children(i).length - 1;
      waiting.push(...inner[i]);
    }
  }
  function visible() { // in the order of reading: parents before their children
    const all = [], stack = [{ id: m ? -1 : 0, level: 1, parent: null }];
    let row = 0;
    while (stack.length) {
      const item = stack.pop();
      all.push(item);
      if (item.id < 0 && open[-1 - item.id]) {
        item.open = true;
        item.kids = children(-1 - item.id).map((id) => ({ id, level: item.level + 1, parent: item }));
        for (let k = item.kids.length - 1; k >= 0; k--) stack.push(item.kids[k]);
      } else item.y = (row++ + 0.5) * step + 18;
    }
    for (let k = all.length - 1; k >= 0; k--)
      if (all[k].open) all[k].y = (all[k].kids[0].y + all[k].kids[all[k].kids.length - 1].y) / 2;
    height = row * step + 24;
    return all;
  }

  // ---- words
  function composition(item) {
    if (!tree.classes) return [];
    const [from, count] = item.id < 0 ? [tree.first[-1 - item.id], tree.sizes[-1 - item.id]] : [item.id, 1];
    const counts = new Map();
    for (let p = from; p < from + count; p++) counts.set(tree.classes[p], (counts.get(tree.classes[p]) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]);
  }
  function digits(x) {
    return x === null ? "∞" : x <= -1e300 ? "−∞" : x.toLocaleString("en", { maximumSignificantDigits: 3 }).replace("-", "−");
  }
  function described(item) {
    const classes = composition(item).map(([k, count]) => (item.id < 0 ? `${tree.class_names[k]} (${count})` : tree.class_names[k]));
    const known = classes.length ? `. Known class: ${classes.slice(0, 5).join(", ")}${classes.length > 5 ? ", …" : ""}` : "";
    if (item.id >= 0) return `${tree.names[item.id]}: cluster ${tree.clusters[item.id]}${known}`;
    const i = -1 - item.id, value = tree.values[i];
    const size = `${text.format(tree.sizes[i])} items`;
    if (tree.measure === "share") return `${size}, together in ${Math.round(100 * value)}% of the draws${known}`;
    const p = value === null ? 1 : 1 / (1 + Math.exp(-value));
    return `${size}, merge probability ${p.toPrecision(2)} (log odds ${digits(value)})${known}`;
  }
  function label(item, letters) {
    let words;
    if (item.id >= 0) words = tree.names[item.id];
    else {
      const i = -1 - item.id, hits = found.filter((p) => p >= tree.first[i] && p < tree.first[i] + tree.sizes[i]).length;
      words = `${text.format(tree.sizes[i])} items${hits ? `, ${hits} found` : `: ${tree.names[tree.first[i]]}, …`}`;
    }
    return words.length > letters ? `${words.slice(0, letters - 1)}…` : words;
  }

  // ---- drawing
  function add(parent, name, attributes, words) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (words !== undefined) element.textContent = words;
    parent.append(element);
    return element;
  }
  function color(item) {
    if (item.id >= 0) return `k${tree.clusters[item.id] % colors}`;
    return single(-1 - item.id) ? `k${tree.clusters[tree.first[-1 - item.id]] % colors}` : "cut";
  }
  function render() {
    hide();
    shown = visible();
    width = Math.max(view.clientWidth - 2, 280);
    const strip = tree.classes ? Math.min(64, 0.12 * width) : 0, room = Math.min(Math.max(0.36 * width, 110), 340);
    const right = width - strip - room - 14, heights = shown.filter((item) => item.id < 0).map((item) => tree.heights[-1 - item.id]);
    const ranks = new Map([...new Set(heights)].sort((a, b) => b - a).map((h, k) => [h, k]));
    const across = (right - 16) / Math.max(ranks.size, 1);
    for (const item of shown) item.x = item.id < 0 ? 10 + across * ranks.get(tree.heights[-1 - item.id]) : right;
    svg.replaceChildren();
    if (strip) add(svg, "text", { x: width - 2, y: 11, class: "head" }, "class");
    for (const item of shown) draw(item, right, strip, Math.floor(room / 6.9));
    resize();
  }
  function draw(item, right, strip, letters) {
    const inside = item.id < 0, folded = inside && !item.open, half = Math.min(step / 2 - 2, 8);
    const g = add(svg, "g", { role: "treeitem", "aria-level": item.level, "aria-label": described(item), "data-id": item.id,
      tabindex: item.id === focused ? 0 : -1, class: color(item) });
    if (inside) g.setAttribute("aria-expanded", String(item.open === true));
    if (item.parent) {
      const mixed = color(item.parent) === "cut";
      add(g, "path", { class: mixed ? "branch above" : "branch", d: `M${item.parent.x},${item.y}H${item.x}` });
    }
    if (item.open) add(g, "path", { class: "branch", d: `M${item.x},${item.kids[0].y}V${item.kids[item.kids.length - 1].y}` });
    if (folded) add(g, "path", { class: "fold", d: `M${item.x},${item.y}L${right},${item.y - half}V${item.y + half}Z` });
    if (inside) {
      add(g, "circle", { class: "target", cx: item.x, cy: item.y, r: 12 });
      add(g, "circle", { class: "node", cx: item.x, cy: item.y, r: folded ? 4.5 : 3 });
      if (tree.measure === "share" && item.parent)
        add(g, "text", { class: "share", x: item.x - 5, y: item.y - 4 }, `${Math.round(100 * tree.values[-1 - item.id])}%`);
    }
    if (!item.open) {
      add(g, "rect", { class: "target", x: right, y: item.y - step / 2, width: width - right, height: step });
      const hit = item.id >= 0 && marked.has(item.id);
      add(g, "text", { x: right + 6, y: item.y + 4, class: hit ? "found" : "" }, label(item, letters));
      if (strip) {
        const all = composition(item), total = all.reduce((sum, [, count]) => sum + count, 0);
        let x = width - strip;
        for (const [k, count] of all) {
          const wide = (strip * count) / total;
          add(g, "rect", { class: `class k${tree.class_colors[k] % colors}`, x, y: item.y - step / 2 + 1, width: wide, height: step - 2 });
          x += wide;
        }
      }
    }
  }
  function resize() {
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width * zoom);
    svg.setAttribute("height", height * zoom);
    frame.dataset.zoom = zoom.toFixed(2);
  }
  function zoomTo(scale) {
    const before = zoom, middle = view.scrollTop + view.clientHeight / 2, centre = view.scrollLeft + view.clientWidth / 2;
    zoom = Math.min(Math.max(scale, 0.1), 5);
    resize();
    view.scrollTop = (middle * zoom) / before - view.clientHeight / 2;
    view.scrollLeft = (centre * zoom) / before - view.clientWidth / 2;
  }

  // ---- moving about
  const itemOf = (element) => shown.find((item) => String(item.id) === element.dataset.id);
  function elementOf(id) {
    return svg.querySelector(`[data-id="${id}"]`);
  }
  function focus(id) {
    const before = elementOf(focused), now = elementOf(id);
    if (before) before.setAttribute("tabindex", -1);
    focused = id;
    now.setAttribute("tabindex", 0);
    now.focus({ preventScroll: true });
    reveal(shown.find((item) => item.id === id));
  }
  function reveal(item) { // scrolls the tree, and then the page as little as can be
    const y = item.y * zoom, x = item.x * zoom;
    if (y < view.scrollTop + step || y > view.scrollTop + view.clientHeight - step) view.scrollTop = y - view.clientHeight / 2;
    if (x < view.scrollLeft || x > view.scrollLeft + view.clientWidth) view.scrollLeft = x - view.clientWidth / 2;
    elementOf(item.id).querySelector(".node, text").scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  function toggle(id, wanted) {
    open[-1 - id] = wanted === undefined ? 1 - open[-1 - id] : wanted;
    render();
    focus(id);
  }
  function show(item) {
    tip.textContent = described(item);
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), outer = frame.getBoundingClientRect();
    const left = box.left - outer.left + item.x * zoom + 8, top = box.top - outer.top + item.y * zoom + 14;
    tip.style.left = `${Math.max(Math.min(left, outer.width - tip.offsetWidth - 4), 4)}px`;
    tip.style.top = `${Math.max(Math.min(top, outer.height - tip.offsetHeight - 4), 0)}px`;
  }
  function hide() {
    tip.hidden = true;
  }
  function keyed(event) {
    const element = event.target.closest("[role=treeitem]");
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && event.key === "/" && event.target !== search) search.focus();
    else if (event.key === "Escape") hide();
    else if (!element || !plain) return;
    else {
      const item = itemOf(element), place = shown.indexOf(item), inside = item.id < 0;
      const to = (other) => other && focus(other.id);
      if (event.key === "ArrowDown") to(shown[place + 1]);
      else if (event.key === "ArrowUp") to(shown[place - 1]);
      else if (event.key === "Home") to(shown[0]);
      else if (event.key === "End") to(shown[shown.length - 1]);
      else if (event.key === "ArrowRight" && inside) item.open ? to(item.kids[0]) : toggle(item.id, 1);
      else if (event.key === "ArrowLeft") item.open ? toggle(item.id, 0) : to(item.parent);
      else if ((event.key === "Enter" || event.key === " ") && inside) toggle(item.id);
      else if (event.key === "+" || event.key === "=") zoomTo(zoom * 1.25);
      else if (event.key === "-") zoomTo(zoom / 1.25);
      else if (event.key === "0") zoomTo(1);
      else return;
    }
    event.preventDefault();
  }

  // ---- searching
  function find() {
    const words = search.value.trim().toLowerCase();
    const known = (p) => tree.classes && tree.class_names[tree.classes[p]].toLowerCase() === words;
    found = words ? tree.names.map((_, p) => p).filter((p) => tree.names[p].toLowerCase().includes(words) || known(p)) : [];
    marked = new Set(found);
    at = -1;
    if (found.length) next(1);
    else {
      status.textContent = words ? "not found" : "";
      render();
    }
  }
  function next(by) {
    if (!found.length) return;
    at = (at + by + found.length) % found.length;
    const p = found[at];
    for (let i = 0; i !== undefined; ) { // every node that contains the item
      open[i] = 1;
      i = inner[i].find((child) => p >= tree.first[child] && p < tree.first[child] + tree.sizes[child]);
    }
    const before = focused;
    focused = p;
    render();
    if (!elementOf(p)) focused = before;
    status.textContent = `${at + 1} of ${found.length}`;
    elementOf(p).classList.add("current");
    reveal(shown.find((item) => item.id === p));
  }

  // ---- set up
  const buttons = {
    open: () => openLargest(most),
    close: () => {
      open.fill(0);
      openLargest(n <= 60 ? n : few);
      focused = m ? -1 : 0;
    },
  };
  for (const name in buttons)
    frame.querySelector(`[data-do=${name}]`).addEventListener("click", () => {
      buttons[name]();
      if (!visible().some((item) => item.id === focused)) focused = m ? -1 : 0;
      render();
    });
  frame.querySelector("[data-do=in]").addEventListener("click", () => zoomTo(zoom * 1.25));
  frame.querySelector("[data-do=out]").addEventListener("click", () => zoomTo(zoom / 1.25));
  frame.querySelector("[data-do=whole]").addEventListener("click", () => zoomTo(Math.min(1, (view.clientHeight - 4) / height)));
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    next(event.shiftKey ? -1 : 1);
  });
  frame.addEventListener("keydown", keyed);
  svg.addEventListener("click", (event) => {
    const element = event.target.closest("[role=treeitem]");
    if (!element) return;
    const id = Number(element.dataset.id);
    if (id < 0) toggle(id);
    else focus(id);
    show(shown.find((item) => item.id === id));
  });
  for (const kind of ["pointerover", "focusin"])
    view.addEventListener(kind, (event) => { // on the SVG element itself, it would make browsers stop there with the tab key
      const element = event.target.closest("[role=treeitem]");
      if (element) show(itemOf(element));
    });
  svg.addEventListener("pointerleave", hide);
  view.addEventListener("focusout", hide);
  view.addEventListener("scroll", hide);
  view.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoomTo(zoom * Math.exp(-event.deltaY / 300));
    },
    { passive: false },
  );
  frame.hidden = false;
  buttons.close();
  render();
  let last = view.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(view.clientWidth - last) < 24) return; // a scroll bar that comes or goes
    last = view.clientWidth;
    render();
  }).observe(view);
}
document.querySelectorAll(".tree").forEach(browsable);
