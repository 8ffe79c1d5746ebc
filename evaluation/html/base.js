// Making elements, numbers as text, and the data. Texts enter the page through text nodes only.

const SVG = 'http://www.w3.org/2000/svg';

/** An element; attributes that are functions become listeners, `css` sets style properties, null is left out. */
function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'css') for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    else if (typeof value === 'function') node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}
const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const NONE = '–';
const fixed = (value, digits = 4) => (value === null || value === undefined ? NONE : (value + 0 === 0 ? 0 : value).toFixed(digits));
const signed = (value, digits = 4) => (value > 0 ? '+' : '') + fixed(value, digits);
const whole = (value) => (value === null || value === undefined ? NONE : Math.round(value).toLocaleString('en-US'));
/** A name that may break after an underscore or a hyphen before digits, not within a word. */
const broken = (name) => name.split(/(?<=_)/).flatMap((part, place) => (place ? [document.createElement('wbr'), part] : [part]));
const percent = (value) => (100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0) + '%';
const words = (name) => name.replaceAll('_', ' ');
const amount = (metric, value, plus) =>
  metric === 'credits' ? (plus && value > 0 ? '+' : '') + whole(value) : (plus ? signed : fixed)(value, 4);

async function unpack(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return JSON.parse(await new Response(stream).text());
}

const data = { overview: null, cases: null, rows: [], faults: [], calls: [], chunks: new Map() };

async function loadData() {
  data.overview = await unpack('data-overview');
  const { cases, rows } = await unpack('data-tables');
  Object.assign(data, { cases, faults: rows.faults, calls: rows.calls });
  const inFull = new Map(data.overview.transcripts.keys.map(([policy, number, repeat, chunk, place]) => [[policy, number, repeat].join(), { chunk, place }]));
  const { objective, budget, sigma } = data.overview;
  rows.of.forEach((table, policy) => table.case.forEach((number, place) => {
    const loss = table.loss[place], credits = table.credits[place];
    const R = loss === null ? null : (loss - cases.floor[number]) / sigma[caseFact('domain', number)];
    const S = R === null ? null : objective.loss * R + objective.cost * credits / budget;
    const repeat = table.repeat[place];
    data.rows.push({
      policy, case: number, repeat, loss, credits, R, S,
      outcome: table.outcome[place], fault: table.fault[place] < 0 ? null : data.faults[table.fault[place]],
      plan: table.plan[place], calls: table.calls[place], seconds: table.seconds[place],
      full: inFull.get([policy, number, repeat].join()) ?? null,
    });
  }));
}

/** A kept episode and the texts that it refers to by number; its chunk is unpacked when it is first asked for. */
async function episodeInFull({ chunk, place }) {
  if (!data.chunks.has(chunk)) {
    const episodes = await unpack(`data-episodes-${chunk}`);
    data.chunks.set(chunk, { episodes, texts: episodes.flatMap((episode) => episode.t) });
  }
  const { episodes, texts } = data.chunks.get(chunk);
  return { ...episodes[place], texts };
}

const caseFact = (name, number) => data.cases[name].names[data.cases[name].of[number]];
const caseId = (number) => data.cases.id[number];
const policyOf = (row) => data.overview.policies[row.policy];
const planOf = (code) => (code ? code.split(' ').map((digit) => parseInt(digit, 36)) : null);

function readHash() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}
function hashOf(parts) {
  const kept = Object.entries(parts).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  return '#' + new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
}
function announce(text) {
  document.getElementById('status').textContent = text;
}

/** Sorts a copy; missing values come last either way. */
function sorted(rows, value, descending) {
  const keyed = rows.map((row, place) => [value(row), place, row]);
  keyed.sort(([a, i], [b, j]) => {
    if (a === b) return i - j;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    const order = typeof a === 'string' ? a.localeCompare(b) : a - b;
    return (descending ? -order : order) || i - j;
  });
  return keyed.map(([, , row]) => row);
}

/** A header cell that sorts: first by what is better or earlier, then the other way. */
function sortHeader(column, current, choose) {
  const chosen = current.sort === column.id;
  const direction = chosen ? (current.descending ? 'descending' : 'ascending') : 'none';
  const button = el('button', {
    type: 'button', class: 'sort', click: () => choose(column.id, chosen ? !current.descending : false),
  }, column.title);
  return el('th', { scope: 'col', 'aria-sort': direction, class: column.class }, button);
}
