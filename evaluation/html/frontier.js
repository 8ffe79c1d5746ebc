// Loss against cost with lines of equal S (FWBench Fig. 3): R up, credits across, so that equal S is a curve
// R = (S - cost * credits / B) / loss. Credits are linear below a threshold and logarithmic above it.

const KINDS = {
  policy: ['policy', 'var(--blue)'], no_tsfm: ['without TSFMs', 'var(--orange)'],
  plan_form: ['answer form plan', 'var(--green)'], hindsight: ['hindsight reference', 'var(--vermillion)'],
};
const kindOf = (policy) =>
  policy.hindsight ? 'hindsight' : policy.pool === 'no_tsfm' ? 'no_tsfm' : policy.form === 'plan' ? 'plan_form' : 'policy';

function frontier(place) {
  const { overview } = data;
  const points = overview.policies.filter((policy) => policy.section !== 'not_rankable');
  if (!points.length || place.clientWidth < 50) return;
  const width = place.clientWidth - 18, narrow = width < 560;
  const height = narrow ? 380 : Math.max(420, 26 * points.length);
  const area = { left: 46, right: width - (narrow ? 12 : 30), top: 24, bottom: height - 40 };
  const { x, y, ticks, levels, threshold } = scales(points, area, narrow);
  const parts = [];
  for (const tick of ticks.x) {
    parts.push(draw('line', { x1: x(tick), x2: x(tick), y1: area.bottom, y2: area.bottom + 4, stroke: 'var(--muted)' }),
      draw('text', { x: x(tick), y: area.bottom + 17, 'text-anchor': 'middle', class: 'soft' }, narrow && tick >= 1000 ? `${tick / 1000}k` : whole(tick)));
  }
  for (const tick of ticks.y) parts.push(draw('text', { x: area.left - 8, y: y(tick) + 4, 'text-anchor': 'end', class: 'soft' }, String(tick)));
  parts.push(draw('line', { x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom, stroke: 'var(--line)' }),
    draw('line', { x1: area.left, x2: area.left, y1: area.top, y2: area.bottom, stroke: 'var(--line)' }),
    draw('line', { x1: x(overview.budget), x2: x(overview.budget), y1: area.top, y2: area.bottom, stroke: 'var(--muted)', 'stroke-dasharray': '2 3' }),
    draw('text', { x: x(overview.budget) - 4, y: area.top - 8, 'text-anchor': 'middle', class: 'soft' }, 'budget B'),
    draw('text', { x: (area.left + area.right) / 2, y: height - 6, 'text-anchor': 'middle', class: 'soft' }, 'forecast credits a case'),
    draw('text', { x: 4, y: area.top - 8, class: 'soft' }, 'R'));
  parts.push(...equalScores(levels, x, y, area, ticks.right));
  const marks = points.map((policy, index) => ({ policy, index, x: x(policy.credits), y: y(policy.R), free: policy.credits < threshold }));
  parts.push(...labelled(marks, area, narrow ? (mark) => String(mark.index + 1) : (mark) => mark.policy.name), ...marks.map(marker));
  const kinds = [...new Set(points.map(kindOf))];
  place.replaceChildren(
    el('div', { class: 'legend' }, kinds.map((kind) => el('span', null, el('i', { css: { background: KINDS[kind][1], 'border-radius': '50%' } }), KINDS[kind][0]))),
    draw('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Normalised excess loss R against credits a case; the ranking table holds the numbers' }, parts),
    narrow ? el('ol', { class: 'key' }, points.map((policy, index) => el('li', null, `${index + 1}  ${policy.name}`))) : '');
}

function scales(points, area, narrow) {
  const { objective, budget } = data.overview;
  const paid = points.map((policy) => policy.credits).filter((value) => value >= 1);
  const threshold = 10 ** Math.floor(Math.log10(Math.min(...paid, budget / 100)));
  const right = 1.3 * Math.max(...paid, budget);
  const zone = narrow ? 60 : Math.min(0.42 * (area.right - area.left), 250);
  const decades = Math.log10(right / threshold);
  const x = (value) => {
    if (value <= threshold) return area.left + 24 + zone * value / threshold;
    return area.left + 24 + zone + (area.right - area.left - 24 - zone) * Math.log10(value / threshold) / decades;
  };
  const losses = points.map((policy) => policy.R), low = Math.min(0, ...losses), high = Math.max(...losses);
  const wide = high > 5; // failing policies would press the others together
  const scale = wide ? (value) => Math.log1p(Math.max(value, 0)) : (value) => value;
  const bottom = low - 0.06 * (high - low || 1), top = high * 1.08 + 0.02;
  const y = (value) => area.bottom - (area.bottom - area.top) * (scale(value) - scale(bottom)) / (scale(top) - scale(bottom));
  const step = [0.05, 0.1, 0.2, 0.25, 0.5, 1].find((size) => (high - low) / size <= 9) ?? 1;
  const count = Math.floor(high / step);
  const ticks = {
    x: [0, ...Array.from({ length: Math.floor(Math.log10(right)) - Math.log10(threshold) + 1 }, (_, power) => threshold * 10 ** power)],
    y: wide ? [0, 0.5, 1, 2, 5, 10, 20, 50, 100].filter((value) => value <= top) : Array.from({ length: count + 1 }, (_, index) => Number((index * step).toFixed(4))),
    right,
  };
  const least = objective.loss ? [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.5, 2.5, 5, 10, 25, 50] : [];
  return { x, y, ticks, threshold, levels: least.filter((level) => level / objective.loss <= (wide ? top : high * 1.6 + 0.4)) };
}

function equalScores(levels, x, y, area, right) {
  const { objective, budget } = data.overview;
  const written = [];
  return levels.flatMap((level) => {
    const path = [];
    for (let place = 0; place <= 300; place += 1) {
      const spent = right * (place / 300) ** 4;
      const R = (level - objective.cost * spent / budget) / objective.loss;
      const height = y(R);
      if (R >= 0 && height >= area.top && height <= area.bottom) path.push([x(spent), height]);
    }
    if (path.length < 2) return [];
    const [end, bottom] = path.at(-1);
    const place = [end > area.right - 20 ? area.right + 2 : end + 3, Math.min(bottom, area.bottom - 3)];
    const clear = written.every(([x0, y0]) => Math.abs(x0 - place[0]) > 26 || Math.abs(y0 - place[1]) > 12);
    if (clear) written.push(place);
    return [
      draw('path', { d: 'M' + path.map((point) => point.map((value) => value.toFixed(1)).join(' ')).join('L'), fill: 'none', stroke: 'var(--line)', 'stroke-width': 1.3 }),
      clear && draw('text', { x: place[0], y: place[1], class: 'soft', 'text-anchor': end > area.right - 20 ? 'end' : 'start' }, String(level)),
    ];
  });
}

function marker({ policy, x, y }) {
  const colour = KINDS[kindOf(policy)][1];
  return draw('g', null, draw('title', null, `${policy.name}: R ${fixed(policy.R)}, ${whole(policy.credits)} credits, S ${fixed(policy.S)}`),
    policy.name === data.overview.reference && draw('circle', { cx: x, cy: y, r: 8.5, fill: 'none', stroke: 'var(--ink)' }),
    policy.hindsight ? draw('path', { d: star(x, y), fill: colour })
      : draw('circle', { cx: x, cy: y, r: 5, fill: policy.pool === 'no_tsfm' ? 'var(--paper)' : colour, stroke: colour, 'stroke-width': 2 }));
}

const star = (x, y) => 'M' + Array.from({ length: 10 }, (_, place) => {
  const angle = Math.PI * (place / 5 - 0.5), radius = place % 2 ? 3.4 : 8;
  return `${(x + radius * Math.cos(angle)).toFixed(1)} ${(y + radius * Math.sin(angle)).toFixed(1)}`;
}).join('L') + 'Z';

/** Labels beside their markers: moved down or up as little as keeps them apart, with a line where they moved. */
function labelled(marks, area, text) {
  const line = 17, taken = [];
  const width = (mark) => 7.1 * text(mark).length;
  return [...marks].sort((a, b) => a.y - b.y).flatMap((mark) => {
    const left = mark.x + (mark.free ? 26 : 12);
    const start = left + width(mark) > area.right + 20 ? mark.x - 12 - width(mark) : left;
    let height = mark.y;
    for (let turn = 0; turn < 80; turn += 1) {
      height = mark.y + Math.ceil(turn / 2) * (turn % 2 ? 1 : -1) * line / 2;
      const free = height > area.top && height < area.bottom + 6 && taken.every((box) => Math.abs(box.y - height) >= line - 1 || box.end < start || box.start > start + width(mark))
        && marks.every((other) => other === mark || Math.abs(other.y - height) > 11 || other.x + 7 < start || other.x - 7 > start + width(mark));
      if (free) break;
    }
    taken.push({ y: height, start, end: start + width(mark) });
    const edge = start > mark.x ? start - 3 : start + width(mark) + 3;
    return [
      (Math.abs(height - mark.y) > 3 || mark.free) && draw('line', { x1: mark.x, y1: mark.y, x2: edge, y2: height, stroke: 'var(--muted)', 'stroke-width': .7 }),
      draw('text', { x: start, y: height + 4, 'data-label': mark.policy.name }, text(mark)),
    ];
  });
}
