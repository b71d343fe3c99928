// The page around the drawing: figures, tables, search, and what mouse and keys do.

const element = id => document.getElementById(id);
const model = readModel(JSON.parse(element("data").textContent));
let view;

function make(tag, text, name) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
}

// `words`: how many columns hold text, not numbers.
function fillTable(table, words, head, rows) {
  table.replaceChildren();
  const header = table.createTHead().insertRow(), body = table.createTBody();
  head.forEach((text, i) => header.append(make("th", text, i < words ? "name" : "")));
  for (const {cells, exposed, go} of rows) {
    const row = body.insertRow();
    cells.forEach((text, i) => row.append(make("td", text, i < words ? "name" : exposed.includes(i) ? "exposed" : "")));
    if (go) row.addEventListener("click", go);
  }
}

const share = (part, whole) => (whole > 0 ? Math.max(0, Math.round(100 * part / whole)) + " %" : "");

function showFigures() {
  const row = side => ({
    cells: [side.name, formatTime(side.span), formatTime(side.kernels), formatTime(side.collectives), formatTime(side.exposed),
            share(side.collectives - side.exposed, side.collectives)],
    exposed: [4],
  });
  fillTable(element("figures"), 1, ["", "step", "kernels", "collectives", "exposed", "hidden"], view.sides.map(row));
}

function showHead() {
  const {plan, trace} = model, instructions = model.programs.reduce((sum, p) => sum + p.count, 0);
  document.title = plan.name + " " + plan.digest.slice(0, 12) + " - dcc timeline";
  element("title").textContent = "Plan " + plan.name + " (" + plan.digest.slice(0, 12) + ")";
  const facts = [plan.world + (plan.world === 1 ? " rank" : " ranks"), plan.chain, instructions + " instructions",
                 model.runs.length > 1 ? model.runs.length + " runs of " + model.programs.length + " programs per step" : "", "predicted from " + plan.origin.slice(0, 20)];
  if (trace) facts.push("real: step " + trace.step + ", the median of " + trace.wholeSteps + " whole steps, communicator " + trace.communicator);
  element("about").textContent = facts.filter(f => f !== "").join(" · ");
  const used = new Set([model.predicted, ...(model.real || [])].flatMap(side => side.lanes).flatMap(lane => [...new Set(lane.colour)]));
  for (const [i, name] of colours.entries()) {
    if (!used.has(i)) continue;
    const entry = make("span"), box = make("i");
    box.style.background = "var(--" + name + ")";
    entry.append(box, name.replace("-", "_"));
    if (i === Exposed) entry.append(" waiting");
    element("legend").append(entry);
  }
  const said = [...plan.remarks, ...plan.notes];
  for (const text of said.length > 0 ? said : ["nothing about this plan"]) element("remarks").append(make("li", text));
}

const moduleOf = (program, i) => model.strings[program.module[i]];

// The waits of compute, longest first: by measured time if there is a trace, else by predicted time.
// The runs of a program are summed: `lengths` holds the sum of each side, `run` the longest run.
function exposedWaits() {
  const waits = new Map(), last = view.sides.length - 1;
  view.sides.forEach((side, s) => side.runs.forEach((times, run) => {
    const p = model.runs[run], program = model.programs[p];
    for (let i = 0; i < program.count; ++i) {
      const own = program.kind[i] === Kind.collective;
      if (program.stream[i] !== 0 || !(own || program.kind[i] === Kind.wait) || times.length[i] <= 0) continue;
      const key = p + " " + i;
      if (!waits.has(key)) waits.set(key, {program, index: i, cause: own ? i : program.awaits[i] - 1, lengths: view.sides.map(() => 0), run, longest: -1});
      const wait = waits.get(key);
      wait.lengths[s] += times.length[i];
      if (s === last && times.length[i] > wait.longest) Object.assign(wait, {run, longest: times.length[i]});
    }
  }));
  return [...waits.values()].sort((a, b) => b.lengths[last] - a.lengths[last]);
}

function showWaits() {
  const rows = exposedWaits().slice(0, 15).map(({program, index, cause, lengths, run}) => {
    const about = cause < 0 ? ["an event", "", "", ""]
                            : [nameOf(model, program, cause), moduleOf(program, cause), program.name + " " + cause, formatBytes(program.bytes[cause])];
    return {cells: [...about, ...lengths.map(formatTime)], exposed: [4, 5], go: () => goTo(run, index)};
  });
  if (rows.length === 0) rows.push({cells: ["compute never stands"], exposed: []});
  fillTable(element("waits"), 3, ["for", "module", "instruction", "bytes", ...view.sides.map(side => side.name)], rows);
}

// Fused kernels and collectives of several buffers, those first that take longest.
function showGroups() {
  const last = view.sides[view.sides.length - 1], groups = [];
  last.runs.forEach((times, run) => {
    const program = model.programs[model.runs[run]];
    for (let i = 0; i < program.count; ++i) {
      if (program.parts[i] !== 0 && times.length[i] >= 0) groups.push({run, program, index: i, length: times.length[i]});
    }
  });
  groups.sort((a, b) => b.length - a.length);
  const rows = groups.slice(0, 15).map(({run, program, index, length}) => ({
    cells: [nameOf(model, program, index), moduleOf(program, index), program.name + " " + index, String(partsOf(model, program, index).length),
            program.saved[index] > 0 ? formatBytes(program.saved[index]) : "", formatTime(length)],
    exposed: [],
    go: () => {
      openGroup(run, index);
      goTo(run, index);
    },
  }));
  if (rows.length === 0) rows.push({cells: ["nothing is fused, and nothing travels together"], exposed: []});
  fillTable(element("groups"), 3, [groups.length + " in all", "module", "instruction", "parts", "not moved", last.name], rows);
}

// What one of them is made of. Of anything else nothing changes.
function openGroup(run, index) {
  const program = model.programs[model.runs[run]], parts = partsOf(model, program, index);
  if (!parts) return;
  const about = program.name + " instruction " + index + (moduleOf(program, index) && " of " + moduleOf(program, index)) +
    (program.saved[index] > 0 ? ", " + formatBytes(program.saved[index]) + " less to move than apart" : "");
  const list = make("ol");
  for (const part of parts) list.append(make("li", part.text, part.stored ? "stored" : ""));
  element("opened").replaceChildren(make("p", about), list);
}

// Zooms to an instruction, laid together on both sides.
function goTo(run, index) {
  const sides = view.sides.filter(side => side.runs[run].length[index] >= 0), side = sides[sides.length - 1];
  const from = side.runs[run].begin[index], length = Math.max(...sides.map(s => s.runs[run].length[index]));
  const margin = Math.max(2 * length, 2000);
  view.focus = {run, index};
  view.align(run, index);
  view.range(from - margin, from + length + margin);
  element("view").scrollIntoView({block: "nearest"});
}

function describe({row, run, index, others}) {
  const tip = [], program = model.programs[model.runs[run]], kind = program.kind[index];
  const add = (text, name) => text && tip.push(make("div", text, name));
  const node = model.strings[program.node[index]];
  tip.push(make("b", kind === Kind.wait ? "compute stands" : nameOf(model, program, index)));
  add(node && "makes " + node + " " + model.strings[program.type[index]]);
  add(moduleOf(program, index) && "module " + moduleOf(program, index));
  add(program.name + " instruction " + index + (model.runs.length > 1 ? ", run " + (run + 1) + " of " + model.runs.length : "") +
      ", " + ["forward", "backward", "update"][program.phase[index]], "quiet");
  if (program.bytes[index] > 0) add((kind === Kind.collective ? "whole value " : "writes ") + formatBytes(program.bytes[index]));
  if (kind === Kind.wait && program.awaits[index] > 0) {
    const cause = program.awaits[index] - 1;
    add("waits for " + nameOf(model, program, cause) + " (instruction " + cause + ") of " + (moduleOf(program, cause) || "the step") +
        ", " + formatBytes(program.bytes[cause]), "exposed");
  }
  for (const side of view.sides) {
    const times = side.runs[run];
    if (times.length[index] < 0) continue;
    const waits = (program.waits.get(index) || []).reduce((sum, w) => sum + Math.max(0, times.length[w]), 0);
    const own = kind === Kind.collective && program.stream[index] === 0 ? times.length[index] : 0;
    let text = side.name + ": " + formatTime(times.length[index]) + " from " + formatTime(times.begin[index]);
    if (kind === Kind.collective || kind === Kind.copy) {
      const hidden = Math.max(0, times.length[index] - waits - own);
      text += ", exposed " + formatTime(waits + own) + ", hidden " + share(hidden, times.length[index]);
    }
    add(text);
  }
  const parts = partsOf(model, program, index);
  if (parts) add(kind === Kind.kernel ? "one kernel of " + parts.length + " operators; click to open it" : parts.length + " buffers travel together; click to open it");
  for (const remark of program.reasonSets[program.reasons[index]]) add(model.plan.remarks[remark]);
  if (others > 0) add("and " + others + " more in this pixel: zoom in", "quiet");
  return tip;
}

function describeMemory({row, curve, at}) {
  const run = curve.run[at], p = model.runs[run], index = curve.index[at], program = model.programs[p];
  const kinds = liveKinds(model, row.space, p, index);
  const tip = [make("b", formatBytes(kinds.reduce((sum, bytes) => sum + bytes, 0)) + " live in " + model.spaces[row.space].name + " memory")];
  tip.push(make("div", "at " + program.name + " instruction " + index + ", " + nameOf(model, program, index), "quiet"));
  kinds.map((bytes, k) => [bytes, model.kinds[k]]).filter(([bytes]) => bytes > 0).sort((a, b) => b[0] - a[0])
    .forEach(([bytes, name]) => tip.push(make("div", name + " " + formatBytes(bytes))));
  return tip;
}

function hover(event) {
  const box = view.canvas.getBoundingClientRect(), hit = view.hit(event.clientX - box.left, event.clientY - box.top);
  const tip = element("tip");
  tip.hidden = !hit;
  const focus = hit && hit.run !== undefined ? {run: hit.run, index: hit.index} : null;
  if (JSON.stringify(focus) !== JSON.stringify(view.focus)) {
    view.focus = focus;
    view.redraw();
  }
  if (!hit) return;
  tip.replaceChildren(...(hit.curve ? describeMemory(hit) : describe(hit)));
  const {offsetWidth, offsetHeight} = tip;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - offsetWidth - 8)) + "px";
  tip.style.top = (event.clientY + 18 + offsetHeight > innerHeight ? Math.max(4, event.clientY - offsetHeight - 12) : event.clientY + 18) + "px";
}

function zoom(factor, time) {
  view.range(time - (time - view.from) * factor, time + (view.to - time) * factor);
}
const zoomMiddle = factor => zoom(factor, (view.from + view.to) / 2);
const move = part => view.range(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

function watchMouse(canvas) {
  let grabbed = null;
  canvas.addEventListener("pointerdown", event => {
    grabbed = {x: event.clientX, from: view.from, to: view.to};
    canvas.setPointerCapture(event.pointerId);
    canvas.classList.add("dragging");
    element("tip").hidden = true;
  });
  canvas.addEventListener("pointerup", event => {
    if (grabbed && Math.abs(grabbed.x - event.clientX) < 3 && view.focus) {
      view.align(view.focus.run, view.focus.index);
      openGroup(view.focus.run, view.focus.index);
    }
    grabbed = null;
    canvas.classList.remove("dragging");
  });
  canvas.addEventListener("pointermove", event => {
    if (!grabbed) return hover(event);
    const shift = (grabbed.x - event.clientX) / view.scale;
    view.range(grabbed.from + shift, grabbed.to + shift);
  });
  canvas.addEventListener("pointerleave", () => { element("tip").hidden = true; });
  canvas.addEventListener("dblclick", () => view.whole());
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move((event.deltaX || event.deltaY) / 1500);
    zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) / 300), view.time(event.clientX - canvas.getBoundingClientRect().left));
  }, {passive: false});
}

function watchKeys() {
  const keys = {w: () => zoomMiddle(0.7), s: () => zoomMiddle(1 / 0.7), a: () => move(-0.2), d: () => move(0.2), 0: () => view.whole(),
                ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2)};
  document.addEventListener("keydown", event => {
    if (event.target.tagName === "INPUT" || event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (keys[event.key]) {
      keys[event.key]();
      event.preventDefault();
    }
  });
}

// Search: what does not match is dimmed; Enter goes from one match to the next.
function watchSearch() {
  let places = [], next = 0;
  element("find").addEventListener("input", event => {
    const words = event.target.value.trim().toLowerCase(), found = model.strings.map(s => s.toLowerCase().includes(words));
    places = [];
    next = 0;
    view.matches = words === "" ? null : model.programs.map(program =>
      Uint8Array.from({length: program.count}, (_, i) => (found[program.op[i]] || found[program.body[i]] || found[program.node[i]] || found[program.module[i]] ? 1 : 0)));
    if (view.matches) {
      model.predicted.lanes.forEach(lane => lane.index.forEach((index, k) => {
        if (view.matches[model.runs[lane.run[k]]][index]) places.push({run: lane.run[k], index, at: lane.begin[k]});
      }));
      places.sort((a, b) => a.at - b.at);
    }
    element("found").textContent = view.matches ? places.length + " found" : "";
    view.redraw();
  });
  element("find").addEventListener("keydown", event => {
    if (event.key !== "Enter" || places.length === 0) return;
    const {run, index} = places[next % places.length];
    element("found").textContent = (next % places.length + 1) + " of " + places.length;
    ++next;
    goTo(run, index);
  });
}

function start() {
  view = new View(element("view"), model);
  showHead();
  showFigures();
  showWaits();
  showGroups();
  watchMouse(view.canvas);
  watchKeys();
  watchSearch();
  element("closer").addEventListener("click", () => zoomMiddle(0.5));
  element("wider").addEventListener("click", () => zoomMiddle(2));
  element("whole").addEventListener("click", () => view.whole());
  if (!model.real || model.real.length < 2) return;
  element("rank-choice").hidden = false;
  model.real.forEach((side, i) => element("rank").append(new Option(side.rank, i)));
  element("rank").addEventListener("change", event => {
    view.show(model.real[event.target.value]);
    showFigures();
    showWaits();
    showGroups();
  });
}
start();
