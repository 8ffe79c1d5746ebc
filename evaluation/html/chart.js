// Demand, forecasts and capacities of one case: the weeks before, and the target day.

const HOUR = 3600e3;
const PLAN_COLOURS = ['var(--blue)', 'var(--orange)', 'var(--green)', 'var(--purple)', 'var(--sky)'];
const COMMITTED = 'var(--ink)', ORACLE = 'var(--vermillion)';

/** A curve of the page's data in physical units. */
function curve(changes, peak) {
  let value = 0;
  return changes.map((change) => { value += change; return value * peak / data.overview.resolution; });
}

function caseCurves(number) {
  const { curves } = data.cases;
  if (!curves) return null;
  const [peak, scale] = [curves.peak[number], curves.scale[number]];
  const capacities = (code) => planOf(code)?.map((index) => scale * curves.grid[number][index]);
  return {
    peak, unit: curves.unit[number], block: curves.block[number], weights: curves.weights[number],
    last: Date.parse(curves.last[number]), target: Date.parse(curves.target[number]),
    history: curve(curves.history[number], peak), actual: curve(curves.actual[number], peak),
    oracle: capacities(curves.oracle[number]), capacities,
  };
}

/** Draws both charts. `plans`: {label, values, colour, bold, dash}; `forecasts`: {label, bands: [low, middle, high]}. */
function caseCharts(place, facts, plans, forecasts) {
  if (place.clientWidth < 50) return;
  const width = place.clientWidth - 18;
  place.replaceChildren(
    el('div', { class: 'legend' },
      key('var(--muted)', 'demand, visible'), key('var(--green)', 'demand, truth'),
      plans.map((plan) => key(plan.colour, plan.label)), forecasts.length ? key('var(--purple)', 'forecast bought: median, 10% to 90%') : null),
    dayChart(width, facts, plans, forecasts), historyChart(width, facts, forecasts));
}
const key = (colour, label) => el('span', null, el('i', { css: { background: colour } }), label);

function dayChart(width, facts, plans, forecasts) {
  const height = width < 560 ? 270 : 330, area = { left: 52, right: width - 8, top: 18, bottom: height - 34 };
  const hours = facts.actual.length;
  const tails = forecasts.map((item) => item.bands.map((band) => band.slice(band.length - hours))).filter((bands) => bands[0].length === hours);
  const values = [...facts.actual, ...plans.flatMap((plan) => plan.values), ...tails.flat(2)];
  const { y, marks } = vertical(values, area);
  const x = (hour) => area.left + (area.right - area.left) * hour / hours;
  const steps = (plan) => 'M' + plan.values.flatMap((value, block) => [`${x(block * facts.block)} ${y(value)}`, `${x((block + 1) * facts.block)} ${y(value)}`]).join('L');
  const line = (series) => 'M' + series.map((value, hour) => `${x(hour + 0.5).toFixed(1)} ${y(value).toFixed(1)}`).join('L');
  const start = new Date(facts.target);
  return draw('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Target day: demand and capacities by block, ${facts.unit}` },
    draw('text', { x: 0, y: 11, class: 'soft' }, `${facts.unit}, target day ${start.toISOString().slice(0, 10)} (from ${start.toISOString().slice(11, 16)} UTC)`),
    weightShades(facts, x, area), marks,
    Array.from({ length: hours / 3 + 1 }, (_, place) => draw('text', { x: x(3 * place), y: area.bottom + 15, 'text-anchor': 'middle', class: 'soft' }, `${3 * place}`)),
    draw('text', { x: (area.left + area.right) / 2, y: height - 3, 'text-anchor': 'middle', class: 'soft' }, width < 560 ? 'hour; shaded: shortage weight' : 'hour of the target day; shaded: weight of a shortage'),
    tails.map((bands) => band(bands, (hour) => x(hour + 0.5), y)),
    draw('path', { d: line(facts.actual), fill: 'none', stroke: 'var(--green)', 'stroke-width': 2.2 }),
    plans.map((plan) => draw('path', { d: steps(plan), fill: 'none', stroke: plan.colour, 'stroke-width': plan.bold ? 3 : 1.6, 'stroke-dasharray': plan.dash, 'data-plan': plan.label }, draw('title', null, plan.label))));
}

function historyChart(width, facts, forecasts) {
  const height = 210, area = { left: 52, right: width - 8, top: 20, bottom: height - 22 };
  const days = width < 560 ? 7 : 14, past = facts.history.slice(-24 * days);
  const ahead = Math.round((facts.target - facts.last) / HOUR) + facts.actual.length - 1;
  const { y, marks } = vertical([...past, ...facts.actual, ...forecasts.flatMap((item) => item.bands.flat())], area);
  const x = (hour) => area.left + (area.right - area.left) * (hour + past.length - 1) / (past.length - 1 + ahead);
  const first = facts.last - (past.length - 1) * HOUR;
  const midnights = Array.from({ length: Math.ceil((past.length + ahead) / 24) + 1 }, (_, day) => (Math.ceil(first / (24 * HOUR)) + day) * 24 * HOUR)
    .filter((time) => time <= facts.last + ahead * HOUR);
  const every = Math.ceil(midnights.length / (width / 62));
  const line = (series, from) => 'M' + series.map((value, hour) => `${x(from + hour).toFixed(1)} ${y(value).toFixed(1)}`).join('L');
  return draw('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `The last ${days} visible days and the target day` },
    draw('text', { x: 0, y: 11, class: 'soft' }, width < 560 ? `${days} visible days and the target day` : `the last ${days} visible days, and the target day; dashed: last visible hour`), marks,
    midnights.filter((_, day) => day % every === 0).map((time) => draw('text', { x: x((time - facts.last) / HOUR), y: area.bottom + 15, 'text-anchor': 'middle', class: 'soft' }, new Date(time).toISOString().slice(5, 10))),
    draw('rect', { x: x(ahead - facts.actual.length + 0.5), y: area.top, width: x(ahead) - x(ahead - facts.actual.length + 0.5), height: area.bottom - area.top, fill: 'var(--mark)', opacity: .6 }),
    draw('line', { x1: x(0), x2: x(0), y1: area.top, y2: area.bottom, stroke: 'var(--muted)', 'stroke-dasharray': '3 3' }),
    forecasts.map((item) => band(item.bands, (hour) => x(hour + 1), y)),
    draw('path', { d: line(past, 1 - past.length), fill: 'none', stroke: 'var(--muted)', 'stroke-width': 1.3 }),
    draw('path', { d: line(facts.actual, ahead - facts.actual.length + 1), fill: 'none', stroke: 'var(--green)', 'stroke-width': 1.6 }));
}

function band([low, middle, high], x, y) {
  const up = low.map((value, hour) => `${x(hour).toFixed(1)} ${y(value).toFixed(1)}`);
  const down = high.map((value, hour) => `${x(hour).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
  const line = middle.map((value, hour) => `${x(hour).toFixed(1)} ${y(value).toFixed(1)}`);
  return [draw('path', { d: `M${[...up, ...down].join('L')}Z`, fill: 'var(--purple)', opacity: .22 }),
    draw('path', { d: `M${line.join('L')}`, fill: 'none', stroke: 'var(--purple)', 'stroke-width': 1.2 })];
}

/** The scale upwards, with its lines. */
function vertical(values, area) {
  const low = Math.min(...values), high = Math.max(...values), room = 0.06 * (high - low || high || 1);
  const bottom = Math.max(low - room, low < 0 ? low - room : 0), top = high + room;
  const y = (value) => area.bottom - (area.bottom - area.top) * (value - bottom) / (top - bottom);
  const rough = (top - bottom) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((size) => size * power).find((size) => size >= rough);
  const marks = [];
  for (let count = Math.ceil(bottom / step); count * step <= top; count += 1) {
    const tick = count * step || 0; // never -0
    marks.push(draw('line', { x1: area.left, x2: area.right, y1: y(tick), y2: y(tick), stroke: 'var(--line)', 'stroke-width': .7 }),
      draw('text', { x: area.left - 6, y: y(tick) + 4, 'text-anchor': 'end', class: 'soft' }, tick.toLocaleString('en-US', { maximumFractionDigits: 2 })));
  }
  return { y, marks };
}

/** Behind the day: the darker, the dearer a shortage. */
function weightShades(facts, x, area) {
  const parts = [];
  for (let start = 0; start < facts.weights.length;) {
    let end = start;
    while (end < facts.weights.length && facts.weights[end] === facts.weights[start]) end += 1;
    const weight = facts.weights[start];
    parts.push(draw('rect', { x: x(start), y: area.top, width: x(end) - x(start), height: area.bottom - area.top, fill: 'var(--grey)', opacity: .05 * weight * weight }),
      draw('text', { x: x((start + end) / 2), y: area.bottom - 5, 'text-anchor': 'middle', class: 'soft' }, `×${weight}`));
    start = end;
  }
  return parts;
}
