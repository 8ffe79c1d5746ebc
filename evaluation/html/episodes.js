// The second view: every episode of every policy, filtered, sorted, walked through by keys.

const PAGE = 100;
const list = { sort: 'case', descending: false, filters: {}, rows: [], shown: PAGE, selected: -1 };

const COLUMNS = [
  { id: 'case', title: 'case', class: 'left name', value: (row) => caseId(row.case) },
  { id: 'policy', title: 'policy', class: 'left', value: (row) => policyOf(row).name },
  { id: 'outcome', title: 'outcome', class: 'left', value: (row) => row.outcome },
  { id: 'S', title: 'S', value: (row) => row.S },
  { id: 'R', title: 'R', class: 'wide', value: (row) => row.R },
  { id: 'loss', title: 'loss', value: (row) => row.loss },
  { id: 'credits', title: 'credits', value: (row) => row.credits },
  { id: 'calls', title: 'calls', value: (row) => row.calls.length },
  { id: 'cohort', title: 'cohort', class: 'left wide', value: (row) => caseFact('cohort', row.case) },
  { id: 'lead', title: 'lead', class: 'left wide', value: (row) => words(caseFact('family', row.case)) },
  { id: 'full', title: 'full', class: 'wide', value: (row) => (row.full === null ? 1 : 0) },
];
const FILTERS = [
  ['policy', (row) => policyOf(row).name], ['cohort', (row) => caseFact('cohort', row.case)],
  ['lead', (row) => caseFact('family', row.case)], ['outcome', (row) => row.outcome],
];

function chooseRows(parts) {
  const { q = '', full = '', sort = 'case', dir = '' } = parts;
  const text = q.toLowerCase().split(/\s+/).filter(Boolean);
  const searched = (row) => [caseId(row.case), policyOf(row).name, row.outcome, row.fault ?? '', caseFact('cohort', row.case), caseFact('family', row.case), ...row.calls.map((call) => data.calls[call])].join(' ').toLowerCase();
  let rows = data.rows;
  for (const [name, value] of FILTERS) if (parts[name]) rows = rows.filter((row) => value(row) === parts[name]);
  if (full) rows = rows.filter((row) => row.full !== null);
  if (text.length) rows = rows.filter((row) => { const all = searched(row); return text.every((word) => all.includes(word)); });
  const column = COLUMNS.find((item) => item.id === sort) ?? COLUMNS[0];
  const descending = dir === 'desc';
  Object.assign(list, { sort: column.id, descending, filters: { ...parts }, rows: sorted(rows, column.value, descending) });
}

function episodesView(parts) {
  chooseRows(parts);
  Object.assign(list, { shown: PAGE, selected: -1 });
  const { transcripts } = data.overview;
  const update = (changes) => {
    const next = { ...readHash(), ...changes, view: 'episodes' };
    history.replaceState(null, '', hashOf(next));
    chooseRows(next);
    Object.assign(list, { shown: PAGE, selected: -1 });
    showRows();
  };
  const options = (name, value) => el('select', { id: `filter-${name}`, 'aria-label': name, change: (event) => update({ [name]: event.target.value }) },
    el('option', { value: '' }, `every ${name}`),
    [...new Set(data.rows.map(value))].sort().map((item) => el('option', { value: item, selected: parts[name] === item }, words(item))));
  const kept = transcripts.kept === 0 ? 'The runs kept no episodes (castgym evaluate --keep-episodes): calls, plans and scores only.'
    : `${whole(transcripts.embedded)} of ${whole(transcripts.kept)} kept episodes are on this page in full, with prompts and responses.`;
  return [
    el('h2', null, 'Episodes'),
    el('p', { class: 'small muted' }, kept),
    el('div', { class: 'filters', role: 'search' },
      el('input', { type: 'search', id: 'filter', placeholder: 'filter: case, policy, fault, tool  ( / )', 'aria-label': 'filter episodes', value: parts.q ?? '', input: (event) => update({ q: event.target.value }) }),
      FILTERS.map(([name, value]) => options(name, value)),
      transcripts.embedded ? el('label', null, el('input', { type: 'checkbox', id: 'filter-full', checked: Boolean(parts.full), change: (event) => update({ full: event.target.checked ? '1' : '' }) }), ' in full') : null,
      el('span', { class: 'muted', id: 'count' })),
    el('div', { class: 'scroll', id: 'episodes' }),
    el('p', null, el('button', { type: 'button', id: 'more', click: () => { list.shown += 5 * PAGE; showRows(); } }, 'Show more')),
  ];
}

function showRows() {
  const place = document.getElementById('episodes');
  if (!place) return;
  const choose = (sort, descending) => {
    history.replaceState(null, '', hashOf({ ...readHash(), view: 'episodes', sort, dir: descending ? 'desc' : '' }));
    chooseRows(readHash());
    list.selected = -1;
    showRows();
    announce(`sorted by ${sort}, ${descending ? 'descending' : 'ascending'}`);
  };
  const rows = list.rows.slice(0, list.shown);
  place.replaceChildren(el('table', null,
    el('thead', null, el('tr', null, COLUMNS.map((column) => sortHeader(column, list, choose)))),
    el('tbody', null, rows.map((row, index) => episodeRow(row, index)))));
  document.getElementById('count').textContent = `${whole(list.rows.length)} of ${whole(data.rows.length)} episodes`;
  document.getElementById('more').hidden = list.rows.length <= list.shown;
  mark();
}

const episodeHash = (row, step) => hashOf({ episode: caseId(row.case), policy: policyOf(row).name, repeat: row.repeat, step });

function episodeRow(row, index) {
  const { repeats } = policyOf(row);
  return el('tr', { class: 'row', 'data-index': index, click: () => { list.selected = index; location.hash = episodeHash(row); } },
    el('td', { class: 'left name' }, el('a', { href: episodeHash(row) }, broken(caseId(row.case))), repeats > 1 && el('span', { class: 'tag' }, `repeat ${row.repeat + 1}`)),
    el('td', { class: 'left' }, broken(policyOf(row).name)),
    el('td', { class: 'left' }, row.outcome === 'completed' ? 'completed' : el('span', { class: 'bad' }, words(row.outcome)), row.fault && row.fault !== row.outcome ? el('span', { class: 'muted' }, ` ${words(row.fault)}`) : null),
    el('td', null, el('b', null, fixed(row.S))), el('td', { class: 'wide' }, fixed(row.R)), el('td', null, fixed(row.loss)),
    el('td', null, whole(row.credits)), el('td', null, row.calls.length),
    el('td', { class: 'left wide' }, caseFact('cohort', row.case)), el('td', { class: 'left wide' }, words(caseFact('family', row.case))),
    el('td', { class: 'wide' }, row.full === null ? '' : '●'));
}

function mark() {
  for (const row of document.querySelectorAll('#episodes tbody tr')) row.setAttribute('aria-current', String(Number(row.dataset.index) === list.selected));
}

function moveSelection(change) {
  const next = Math.min(Math.max(list.selected + change, 0), list.rows.length - 1);
  if (next < 0) return;
  list.selected = next;
  if (next >= list.shown) { list.shown = next + PAGE; showRows(); }
  mark();
  document.querySelector(`#episodes tr[data-index="${next}"]`)?.scrollIntoView({ block: 'nearest' });
  const row = list.rows[next];
  announce(`${caseId(row.case)}, ${policyOf(row).name}, S ${fixed(row.S)}`);
}
