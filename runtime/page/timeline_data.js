"use strict";
// The page's data, unpacked: what runs when, by stream, as predicted and as it really was.

const Kind = {kernel: 0, collective: 1, copy: 2, signal: 3, wait: 4};
const colours = ["forward", "backward", "update", "all-gather", "reduce-scatter", "all-reduce", "copy", "exposed", "dim"];
const FirstTransfer = colours.indexOf("all-gather");
const Exposed = colours.indexOf("exposed"), Dim = colours.indexOf("dim");

// A packed column: base64 of integers in 7-bit groups, lowest first; signed ones zigzag.
function unpack(text, count, signed) {
  const bytes = atob(text), numbers = new Float64Array(count);
  for (let i = 0, at = 0; i < count; ++i) {
    let value = 0, scale = 1, byte;
    do {
      byte = bytes.charCodeAt(at++);
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte & 128);
    numbers[i] = !signed ? value : value % 2 ? -(value + 1) / 2 : value / 2;
  }
  return numbers;
}

// Differences to the last number that is present.
function sums(steps, present) {
  let last = 0;
  return steps.map((step, i) => (present[i] < 0 ? 0 : (last += step)));
}

function readProgram(packed) {
  const program = {name: packed.name, count: packed.count, time: packed.time_ns, exposed: packed.exposed_ns, collective: packed.collective_ns};
  for (const key of ["kind", "stream", "phase", "op", "node", "type", "module", "bytes", "awaits", "reasons", "length", "body", "parts", "saved"]) {
    program[key] = unpack(packed[key], packed.count, false);
  }
  program.begin = sums(unpack(packed.begin, packed.count, true), program.length);
  program.reasonSets = packed.reason_sets.map(set => (set === "" ? [] : set.split(",").map(Number)));
  program.waits = new Map();  // from what is awaited to the waits of compute for it
  for (let i = 0; i < program.count; ++i) {
    if (program.kind[i] !== Kind.wait || program.stream[i] !== 0 || program.awaits[i] === 0) continue;
    const cause = program.awaits[i] - 1;
    program.waits.set(cause, [...(program.waits.get(cause) || []), i]);
  }
  return program;
}

function readModel(data) {
  const model = {plan: data.plan, streams: data.streams, spaces: data.spaces, kinds: data.kinds, strings: data.strings};
  model.programs = data.programs.map(readProgram);
  model.runs = data.step.flatMap(run => Array(run.repeat).fill(run.program));  // programs of the step, in order
  model.slices = {count: data.slices.count};
  for (const key of ["space", "kind", "program", "first", "last", "bytes"]) {
    model.slices[key] = unpack(data.slices[key], data.slices.count, false);
  }
  // A side is the predicted or the measured step: begin and length of every instruction of every run;
  // length -1: the trace has no record of it.
  let offset = 0;
  model.predicted = {
    name: "predicted",
    runs: model.runs.map(p => {
      const program = model.programs[p], run = {begin: program.begin.map(t => t + offset), length: program.length};
      offset += program.time;
      return run;
    }),
  };
  model.real = data.real && data.real.ranks.map(rank => ({
    name: "rank " + rank.rank + ", step " + data.real.step,
    rank: rank.rank,
    runs: rank.runs.map((packed, r) => {
      const count = model.programs[model.runs[r]].count;
      const length = unpack(packed.length, count, false).map(n => n - 1);
      return {begin: sums(unpack(packed.begin, count, true), length), length};
    }),
  }));
  model.trace = data.real && {communicator: data.real.communicator, step: data.real.step, wholeSteps: data.real.whole_steps};
  for (const side of [model.predicted, ...(model.real || [])]) addLanes(model, side);
  return model;
}

// What an instruction is made of: the operators of a fused kernel, the buffers of a collective that carries
// several. Null for all others. `stored`: a result; what is not stored never lies in memory.
function partsOf(model, program, i) {
  const body = model.strings[program.body[i]], names = model.strings[program.parts[i]].split(",");
  if (body === "") return program.parts[i] === 0 ? null : names.map(name => ({text: name, name, stored: true}));
  const [operations, results] = body.split("->"), stored = new Set(results.split(","));
  return operations.split(";").filter(text => text !== "").map(text => {
    const [, value, type, overload, rest] = /^(t\d+):(\w+)=([\w.]+)(.*)$/.exec(text);
    const shown = rest.replace(/=a(\d+)\b/g, (_, operand) => "=" + names[operand]);
    return {text: value + ": " + type + " = " + overload + shown, name: overload.split(".")[0], stored: stored.has(value)};
  });
}

// "silu + mul" of a fused kernel, the operator or the collective of all others.
function nameOf(model, program, i) {
  const name = model.strings[program.op[i]];
  return program.body[i] === 0 ? name : partsOf(model, program, i).map(part => part.name).join(" + ");
}

function colourOf(model, program, i) {
  if (program.kind[i] === Kind.wait) return Exposed;
  if (program.kind[i] === Kind.copy) return colours.indexOf("copy");
  if (program.kind[i] === Kind.kernel) return program.phase[i];
  return Math.max(colours.indexOf(model.strings[program.op[i]].replace("_", "-")), FirstTransfer);
}

// Lanes of a side: by stream, everything that takes time on it, in order. Of the waits only those of
// compute are shown: another stream that waits is just free.
function addLanes(model, side) {
  const lanes = model.streams.map(name => ({name, begin: [], end: [], colour: [], run: [], index: []}));
  Object.assign(side, {lanes, shift: 0, span: 0, kernels: 0, collectives: 0, exposed: 0});
  side.runs.forEach((times, r) => {
    const program = model.programs[model.runs[r]];
    for (let i = 0; i < program.count; ++i) {
      const kind = program.kind[i], stream = program.stream[i], length = times.length[i];
      if (length < 0 || kind === Kind.signal || (kind === Kind.wait && (stream !== 0 || length === 0))) continue;
      const lane = lanes[stream], end = times.begin[i] + length;
      lane.begin.push(times.begin[i]);
      lane.end.push(end);
      lane.colour.push(colourOf(model, program, i));
      lane.run.push(r);
      lane.index.push(i);
      side.span = Math.max(side.span, end);
      if (kind === Kind.kernel) side.kernels += length;
      if (kind === Kind.collective) side.collectives += length;
      if (stream === 0 && (kind === Kind.wait || kind === Kind.collective)) side.exposed += length;
    }
  });
  for (const lane of lanes) {
    lane.begin = Float64Array.from(lane.begin);
    lane.end = Float64Array.from(lane.end);
  }
}

// Live bytes of a space by instruction of a program; what is kept from step to step counts everywhere.
function liveBytes(model, space, p) {
  const {slices} = model, count = model.programs[p].count, live = new Float64Array(count + 1);
  for (let s = 0; s < slices.count; ++s) {
    if (slices.space[s] !== space) continue;
    if (slices.program[s] === 0) {
      live[0] += slices.bytes[s];
    } else if (slices.program[s] === p + 1) {
      live[slices.first[s]] += slices.bytes[s];
      live[slices.last[s] + 1] -= slices.bytes[s];
    }
  }
  for (let i = 1; i <= count; ++i) live[i] += live[i - 1];
  return live;
}

// The memory of a space over a side's time: at each instruction of compute, the most that was live
// since the one before.
function memoryCurve(model, space, side) {
  const curve = {time: [], bytes: [], run: [], index: [], peak: 0};
  const live = model.programs.map((_, p) => liveBytes(model, space, p));
  side.runs.forEach((times, r) => {
    const p = model.runs[r], program = model.programs[p];
    let most = 0;
    for (let i = 0; i < program.count; ++i) {
      most = Math.max(most, live[p][i]);
      if (program.stream[i] !== 0 || times.length[i] < 0 || program.kind[i] === Kind.signal) continue;
      if (curve.bytes.length === 0 || most > curve.bytes[curve.peak]) curve.peak = curve.bytes.length;
      curve.time.push(times.begin[i]);
      curve.bytes.push(most);
      curve.run.push(r);
      curve.index.push(i);
      most = 0;
    }
  });
  return curve;
}

// Live bytes by kind at one instruction.
function liveKinds(model, space, p, index) {
  const {slices} = model, bytes = model.kinds.map(() => 0);
  for (let s = 0; s < slices.count; ++s) {
    if (slices.space[s] !== space) continue;
    const alive = slices.program[s] === 0 || (slices.program[s] === p + 1 && slices.first[s] <= index && index <= slices.last[s]);
    if (alive) bytes[slices.kind[s]] += slices.bytes[s];
  }
  return bytes;
}
