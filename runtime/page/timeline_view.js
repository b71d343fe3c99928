// Drawing: rows of lanes and memory curves on one canvas, over one range of time.

const gutter = 128, axisHeight = 24;

const timeUnits = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

// Four digits, without zeros at the end.
function formatTime(ns) {
  const [size, name] = timeUnits.find(unit => Math.abs(ns) >= unit[0]) || timeUnits[3];
  const value = ns / size, before = Math.max(1, Math.floor(Math.log10(Math.abs(value) || 1)) + 1);
  return Number(value.toFixed(Math.max(0, 4 - before))) + " " + name;
}

// A mark of an axis whose marks are `step` apart.
function formatMark(ns, step, end) {
  const [size, name] = timeUnits.find(unit => end >= unit[0]) || timeUnits[3];
  return (ns / size).toFixed(Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9))) + " " + name;
}

function formatBytes(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return (unit ? bytes.toFixed(1) : bytes) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

// First position whose value is above `limit`; values ascend.
function firstAbove(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

class View {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.context = canvas.getContext("2d");
    this.matches = null;  // by program: 1 for instructions that are searched for
    this.focus = null;    // {run, index}: outlined on every side
    this.show(model.real ? model.real[0] : null);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.readColours());
    addEventListener("resize", () => this.resize());
    this.readColours();
    this.resize();
  }

  // Shows the prediction and one real side, if any.
  show(real) {
    this.sides = real ? [this.model.predicted, real] : [this.model.predicted];
    this.span = Math.max(1, ...this.sides.map(side => side.span));
    this.rows = [];
    let y = axisHeight;
    const add = (row, height, gap) => {
      this.rows.push({...row, y, height});
      y += height + gap;
    };
    for (const side of this.sides) {
      add({kind: "title", side}, 18, 2);
      side.lanes.forEach((lane, i) => add({kind: "lane", side, lane}, i === 0 ? 46 : 30, 5));
      y += 6;
    }
    this.model.spaces.forEach((space, s) => {
      if (space.arena === 0) return;
      const curves = this.sides.map(side => memoryCurve(this.model, s, side));
      add({kind: "memory", space: s, curves, top: Math.max(space.arena, ...curves.map(c => c.bytes[c.peak] || 0))}, 110, 8);
    });
    this.height = y;
    if (this.from === undefined) this.whole();
    this.resize();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    this.colour = name => style.getPropertyValue("--" + name).trim();
    this.fills = colours.map(this.colour);
    this.redraw();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = this.height + "px";
    this.width = Math.max(gutter + 50, this.canvas.clientWidth);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.redraw();
  }

  redraw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  whole() {
    for (const side of this.sides) side.shift = 0;
    this.range(-0.01 * this.span, 1.01 * this.span);
  }

  // Shifts the prediction so that an instruction begins at one place on both sides.
  align(run, index) {
    const [predicted, real] = this.sides;
    if (real && real.runs[run].length[index] >= 0) predicted.shift = real.runs[run].begin[index] - predicted.runs[run].begin[index];
    this.redraw();
  }
  range(from, to) {
    const width = Math.min(Math.max(to - from, 100), 1.1 * this.span), middle = (from + to) / 2;
    this.from = Math.min(Math.max(middle - width / 2, -0.05 * this.span), 1.05 * this.span - width);
    this.to = this.from + width;
    this.redraw();
  }
  get scale() { return (this.width - gutter) / (this.to - this.from); }  // pixels per nanosecond
  x(time, side) { return gutter + (time + side.shift - this.from) * this.scale; }
  time(x) { return this.from + (x - gutter) / this.scale; }

  draw() {
    const {context} = this;
    context.fillStyle = this.colour("page");
    context.fillRect(0, 0, this.width, this.height);
    this.drawAxis();
    for (const row of this.rows) {
      if (row.kind === "title") this.label(row.side.name + (row.side.shift ? ", later by " + formatTime(row.side.shift) : ""), 8, row.y + 13, true);
      if (row.kind === "lane") this.drawLane(row);
      if (row.kind === "memory") this.drawMemory(row);
    }
    if (this.focus) this.drawFocus();
  }

  label(text, x, y, strong) {
    const {context} = this;
    context.font = (strong ? "600 12px " : "11px ") + "system-ui, 'DejaVu Sans', sans-serif";
    context.fillStyle = this.colour(strong ? "text" : "quiet");
    context.textAlign = "left";
    context.fillText(text, x, y);
  }

  drawAxis() {
    const {context} = this, wanted = (this.to - this.from) / ((this.width - gutter) / 110);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = power * [1, 2, 5, 10].find(n => n * power >= wanted);
    for (let k = Math.ceil(Math.max(0, this.from) / step); k * step <= this.to; ++k) {
      const x = Math.round(gutter + (k * step - this.from) * this.scale);
      context.fillStyle = this.colour("line");
      context.fillRect(x, axisHeight - 5, 1, this.height);
      this.label(formatMark(k * step, step, this.to), x + 3, 13, false);
    }
  }

  // Pixel columns that one instruction covers wholly are drawn as a box. A column that several share is
  // divided by height in proportion to their times.
  drawLane({side, lane, y, height}) {
    const {context, fills, scale} = this, wide = this.width - gutter, from = this.from - side.shift, to = this.to - side.shift;
    this.label(lane.name, 18, y + height / 2 + 4, false);
    context.fillStyle = this.colour("panel");
    context.fillRect(gutter, y, wide, height);
    const shares = colours.map(() => null), edges = [];
    for (let i = firstAbove(lane.end, from); i < lane.begin.length && lane.begin[i] < to; ++i) {
      let colour = lane.colour[i];
      if (this.matches && !this.matches[this.model.runs[lane.run[i]]][lane.index[i]]) colour = Dim;
      const left = Math.max(0, (lane.begin[i] - from) * scale), right = Math.min(wide, (lane.end[i] - from) * scale);
      const share = shares[colour] || (shares[colour] = new Float32Array(wide + 2));
      const first = Math.floor(left), last = Math.floor(right);
      if (first === last) {
        share[first] += right - left;
        continue;
      }
      share[first] += first + 1 - left;
      share[last] += right - last;
      if (last === first + 1) continue;
      context.fillStyle = fills[colour];
      context.fillRect(gutter + first + 1, y, last - first - 1, height);
      const program = this.model.programs[this.model.runs[lane.run[i]]];
      if (right - left > 6 && program.parts[lane.index[i]] !== 0) this.drawParts(program, lane.index[i], gutter + left, y, right - left);
      if (right - left > 34) this.caption(side, lane, i, gutter + left, y, right - left, height);
      if (right - left > 6) edges.push(last);
    }
    this.drawShares(shares, y, height);
    context.fillStyle = this.colour("page");
    for (const edge of edges) context.fillRect(gutter + edge, y, 1, height);
  }

  // A stripe above what is one instruction of several: a cut for each operator or buffer.
  drawParts(program, i, x, y, width) {
    const {context} = this, count = partsOf(this.model, program, i).length, part = width / count;
    context.fillStyle = this.colour("text");
    if (part < 3) return context.fillRect(x, y, width, 3);
    for (let k = 0; k < count; ++k) context.fillRect(x + k * part, y, part - 1, 3);
  }

  drawShares(shares, y, height) {
    const {context} = this, wide = this.width - gutter, used = new Float32Array(wide + 2);
    for (let c = 0; c < colours.length; ++c) {
      if (!shares[c]) continue;
      context.fillStyle = this.fills[c];
      for (let pixel = 0; pixel < wide; ++pixel) {
        // However short, communication shows.
        const visible = c >= FirstTransfer && c !== Dim && shares[c][pixel] > 0;
        const part = Math.max(shares[c][pixel], visible ? 3 / height : 0);
        if (part <= 0.004) continue;
        const top = c === Exposed ? height * (1 - Math.min(1, part)) : height * Math.min(1, used[pixel]);
        context.fillRect(gutter + pixel, y + top, 1, height * Math.min(1, part));
        used[pixel] += part;
      }
    }
  }

  caption(side, lane, i, x, y, width, height) {
    const {context} = this, program = this.model.programs[this.model.runs[lane.run[i]]];
    let text = nameOf(this.model, program, lane.index[i]).replace(/^aten\./, "").replace(/\.default$/, "");
    context.font = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
    const room = Math.floor((width - 6) / context.measureText("m").width);
    if (room < 3) return;
    if (text.length > room) text = text.slice(0, room - 1) + "…";
    context.fillStyle = "#ffffff";
    context.shadowColor = "rgb(0 0 0 / 65%)";
    context.shadowBlur = 2;
    context.fillText(text, x + 3, y + height / 2 + 4);
    context.shadowBlur = 0;
  }

  drawMemory({space, curves, top, y, height}) {
    const {context, model} = this, wide = this.width - gutter, floor = y + height;
    const level = bytes => floor - (height - 14) * (bytes / top);
    this.label(model.spaces[space].name + " memory", 8, y + 13, true);
    this.label("arena " + formatBytes(model.spaces[space].arena), 18, y + 30, false);
    if (curves.length > 1) this.label("line: " + this.sides[1].name, 18, y + 46, false);
    context.fillStyle = this.colour("panel");
    context.fillRect(gutter, y, wide, height);
    curves.forEach((curve, c) => {
      const {time, bytes} = curve, side = this.sides[c], most = new Float64Array(wide + 1).fill(-1);
      let i = Math.max(0, firstAbove(time, this.from - side.shift) - 1), last = bytes[i] || 0;
      for (; i < time.length && time[i] + side.shift <= this.to; ++i) {
        const pixel = Math.max(0, Math.floor(this.x(time[i], side) - gutter));
        most[pixel] = Math.max(most[pixel], bytes[i]);
      }
      context.beginPath();
      for (let pixel = 0; pixel < wide; ++pixel) {
        if (gutter + pixel < this.x(0, side) || gutter + pixel > this.x(side.span, side)) continue;
        if (most[pixel] >= 0) last = most[pixel];
        if (c === 0) context.rect(gutter + pixel, level(last), 1, floor - level(last));
        else context.rect(gutter + pixel, level(last) - 0.75, 1, 1.5);
      }
      context.fillStyle = this.colour(c === 0 ? "memory" : "memory-real");
      context.fill();
    });
    if (curves[0].bytes.length > 0) this.drawPeak(curves[0], level);
    context.fillStyle = this.colour("quiet");
    for (let x = gutter; x < this.width; x += 8) context.fillRect(x, level(this.model.spaces[space].arena), 4, 1);
  }

  drawPeak(curve, level) {
    const x = this.x(curve.time[curve.peak], this.sides[0]), bytes = curve.bytes[curve.peak];
    if (x < gutter || x > this.width) return;
    const {context} = this, text = "peak " + formatBytes(bytes), left = x > this.width - 130;
    context.beginPath();
    context.arc(x, level(bytes), 3.5, 0, 7);
    context.fillStyle = this.colour("text");
    context.fill();
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.fillText(text, left ? x - 8 - context.measureText(text).width : x + 8, level(bytes) + 4);
  }

  drawFocus() {
    const {context} = this, ends = [];
    context.strokeStyle = this.colour("text");
    context.lineWidth = 1.5;
    for (const row of this.rows) {
      if (row.kind !== "lane") continue;
      const times = row.side.runs[this.focus.run], program = this.model.programs[this.model.runs[this.focus.run]];
      if (row.side.lanes[program.stream[this.focus.index]] !== row.lane || times.length[this.focus.index] < 0) continue;
      const left = this.x(times.begin[this.focus.index], row.side), right = left + Math.max(2, times.length[this.focus.index] * this.scale);
      if (right < gutter || left > this.width) continue;
      const from = Math.max(gutter, left), to = Math.min(this.width, right);
      context.strokeRect(from, row.y - 1, to - from, row.height + 2);
      ends.push([(from + to) / 2, row]);
    }
    if (ends.length < 2) return;
    context.beginPath();
    context.moveTo(ends[0][0], ends[0][1].y + ends[0][1].height + 1);
    context.lineTo(ends[1][0], ends[1][1].y - 1);
    context.stroke();
  }

  // What is at a point: {row, run, index, others} in a lane (`others`: how many more share the pixel),
  // {row, curve, at} in a memory curve, null elsewhere.
  hit(x, y) {
    const row = this.rows.find(r => y >= r.y && y < r.y + r.height);
    if (!row || x < gutter || row.kind === "title") return null;
    if (row.kind === "memory") {
      const time = this.time(x) - this.sides[0].shift, at = firstAbove(row.curves[0].time, time) - 1;
      return at < 0 || time > this.sides[0].span ? null : {row, curve: row.curves[0], at};
    }
    const {lane} = row, time = this.time(x) - row.side.shift, reach = 1 / this.scale;
    let best = -1, others = -1;
    for (let i = firstAbove(lane.end, time - reach); i < lane.begin.length && lane.begin[i] < time + reach; ++i) {
      ++others;
      const covers = lane.begin[i] <= time && time < lane.end[i];
      if (best < 0 || covers || lane.end[i] - lane.begin[i] > lane.end[best] - lane.begin[best]) best = i;
      if (covers && (lane.end[i] - lane.begin[i]) * this.scale > 2) {
        others = 0;
        break;
      }
    }
    return best < 0 ? null : {row, run: lane.run[best], index: lane.index[best], others};
  }
}
