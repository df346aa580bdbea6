// The page's data: JSON with little-endian arrays encoded in base64.

const data = JSON.parse(document.getElementById("data").textContent);

function unpack(text, Kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Kind(bytes.buffer);
}

function unpackRun(run) {
  const labels = unpack(run.labels, Uint16Array);
  return {
    axes: run.axes,
    low: run.low,
    high: run.high,
    samples: run.samples,
    count: labels.length,
    labels,
    coordinates: unpack(run.coordinates, Uint16Array),
    decided: unpack(run.decided, Uint16Array),
    probabilities: unpack(run.probabilities, Uint16Array),
  };
}

// The names and contents of samples. `draw` paints an image on a canvas; `text` returns the values of a feature vector.
function unpackSamples(samples) {
  if (samples.values) {
    const values = unpack(samples.values, Float32Array);
    return {
      names: samples.names,
      draw: null,
      text(i) {
        const row = Array.from(values.subarray(i * samples.shown, (i + 1) * samples.shown), (v) => short(v));
        return row.join(", ") + (samples.all > samples.shown ? ", \u2026 (" + samples.all + " values)" : "");
      },
    };
  }
  const sheet = new Image();
  sheet.src = samples.sheet;
  const ready = sheet.decode();
  const [width, height] = samples.tile;
  return {
    names: samples.names,
    text: null,
    async draw(canvas, i) {
      const zoom = Math.max(1, Math.floor(96 / Math.max(width, height)));
      canvas.width = width * zoom;
      canvas.height = height * zoom;
      await ready;
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = false;
      const x = (i % samples.columns) * samples.pitch[0];
      const y = Math.floor(i / samples.columns) * samples.pitch[1];
      context.drawImage(sheet, x, y, width, height, 0, 0, canvas.width, canvas.height);
    },
  };
}

function short(value) {
  return String(Number(value.toPrecision(4)));
}

// About `count` round numbers within [low, high].
function niceSteps(low, high, count) {
  const span = (high - low) / count;
  if (!(span > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(span));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((s) => s >= span * 0.999);
  const steps = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) steps.push(k * step);
  return steps;
}
