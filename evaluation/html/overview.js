// The first view: ranking, tool mix, credits, outcomes, cohorts, runs.

const OUTCOME_COLOURS = {
  completed: 'var(--green)', invalid_submission: 'var(--orange)', budget_exhausted: 'var(--purple)',
  truncated: 'var(--vermillion)', infrastructure_error: 'var(--grey)',
};
const TOOL_COLOURS = {
  forecast_and_plan: 'var(--vermillion)', replay_forecast: 'var(--orange)', quote_forecast: 'var(--purple)',
  classical_plan: 'var(--blue)', hourly_history_plan: 'var(--sky)', history: 'var(--green)',
  'no such tool': 'var(--bad)', 'unreadable call': 'var(--ink)',
};
const toolColour = (name) => TOOL_COLOURS[name] ?? 'var(--grey)';

const ranking = { sort: 'S', descending: false, selected: -1 };

const RANKING = [
  { id: 'rank', title: '#', value: (policy) => policy.rank },
  { id: 'name', title: 'policy', class: 'left name', value: (policy) => policy.name },
  { id: 'S', title: 'S', value: (policy) => policy.S },
  { id: 'versus', title: 'S − reference', value: (policy) => policy.versus?.S[0] ?? null },
  { id: 'valid', title: 'valid', value: (policy) => policy.valid },
  { id: 'loss', title: 'loss', value: (policy) => policy.loss },
  { id: 'credits', title: 'credits', value: (policy) => policy.credits },
  { id: 'R', title: 'R', class: 'wide', value: (policy) => policy.R },
  { id: 'S_v', title: 'S_v', class: 'wide', value: (policy) => policy.S_v },
];

function overviewView() {
  const { overview } = data;
  const { bootstrap } = overview;
  return [
    el('div', { class: 'facts small' },
      el('span', null, 'case set ', el('b', null, overview.title)),
      el('span', null, 'fingerprint ', el('code', null, overview.fingerprint)),
      el('span', null, 'budget B ', el('b', null, whole(overview.budget))),
      ...Object.entries(overview.sigma).map(([name, value]) => el('span', null, `sigma ${words(name)} `, el('b', null, value.toPrecision(4)))),
      el('span', null, 'castgym ', el('b', null, overview.versions.join(', '))),
    ),
    el('h2', null, 'Ranking'),
    el('p', { class: 'small muted' },
      `Lower is better. ${overview.objective.formula}, R = (loss − floor) / sigma. `,
      overview.reference ? `Reference: ${overview.reference}. ` : '',
      `${100 * bootstrap.level}% paired cluster bootstrap, ${whole(bootstrap.resamples)} resamples, seed ${bootstrap.seed}; `,
      'conditional on the dates, not adjusted for multiple comparisons; bold differences exclude zero.'),
    el('div', { class: 'scroll', id: 'ranking' }, rankingTable()),
    notes(),
    el('h2', null, 'Loss and cost'),
    el('p', { class: 'small muted' }, 'Lower left is better. A policy on a grey line has the S that stands at it.'),
    el('div', { class: 'chart', id: 'frontier' }),
    el('h2', null, 'Tool mix and credits'),
    legend(overview.tools.filter((tool) => overview.policies.some((policy) => policy.tools[tool])), toolColour),
    toolTable(),
    el('h2', null, 'Outcomes'),
    legend(overview.outcomes, (name) => OUTCOME_COLOURS[name]),
    outcomeTable(),
    el('h2', null, 'S by cohort and lead'),
    el('p', { class: 'small muted' }, 'Shaded from the best of a column (none) to the worst (full); hindsight references are not shaded.'),
    cohortTable(),
    el('h2', null, 'Runs'),
    runTable(),
  ];
}

function rankingTable() {
  const choose = (sort, descending) => {
    Object.assign(ranking, { sort, descending, selected: -1 });
    document.getElementById('ranking').replaceChildren(rankingTable());
    announce(`sorted by ${sort}, ${descending ? 'descending' : 'ascending'}`);
  };
  const { policies, sections } = data.overview;
  const top = Math.max(...policies.map((policy) => policy.own?.S[2] ?? policy.S));
  const column = RANKING.find((item) => item.id === ranking.sort);
  const head = RANKING.map((item) => sortHeader(item, ranking, choose));
  head.splice(3, 0, el('th', { scope: 'col', class: 'left wide' }, `${100 * data.overview.bootstrap.level}% interval of S`));
  return el('table', null,
    el('thead', null, el('tr', null, head)),
    sections.map((section) => el('tbody', null,
      el('tr', { class: 'group' }, el('th', { colspan: RANKING.length + 1, scope: 'rowgroup' }, section.title)),
      sorted(policies.filter((policy) => policy.section === section.id), column.value, ranking.descending)
        .map((policy) => rankingRow(policy, top)))));
}

function rankingRow(policy, top) {
  const versus = policy.versus?.S;
  const clear = versus && (versus[1] > 0 || versus[2] < 0);
  const open = () => { location.hash = hashOf({ view: 'episodes', policy: policy.name }); };
  return el('tr', { class: 'row', 'data-policy': policy.name, click: open },
    el('td', null, policy.rank ?? ''),
    el('td', { class: 'left name' }, el('a', { href: hashOf({ view: 'episodes', policy: policy.name }) }, broken(policy.name)),
      policy.pool === 'no_tsfm' && el('span', { class: 'tag' }, 'no TSFM'),
      policy.asked !== 'combined' && el('span', { class: 'tag' }, `asked: ${policy.asked}`)),
    el('td', null, el('b', null, fixed(policy.S))),
    el('td', { class: 'left wide' }, intervalBar(policy, top)),
    el('td', null, versus ? el(clear ? 'b' : 'span', null, signed(versus[0]), el('span', { class: 'wide' }, ` [${signed(versus[1], 3)}, ${signed(versus[2], 3)}]`))
      : policy.name === data.overview.reference ? 'reference' : NONE),
    el('td', null, `${whole(policy.valid)} / ${whole(policy.scored)}`),
    el('td', null, fixed(policy.loss)),
    el('td', null, whole(policy.credits)),
    el('td', { class: 'wide' }, fixed(policy.R)),
    el('td', { class: 'wide' }, fixed(policy.S_v)));
}

/** A policy's own interval on a scale that all share, compressed upwards so that failing policies fit. */
function intervalBar(policy, top) {
  const width = 150, x = (value) => 4 + (width - 8) * Math.log1p(2 * Math.max(value, 0)) / Math.log1p(2 * Math.max(top, 1e-9));
  const own = policy.own?.S;
  const label = own ? `${fixed(own[0])}, from ${fixed(own[1])} to ${fixed(own[2])}` : `${fixed(policy.S)}, no interval`;
  return draw('svg', { width, height: 16, role: 'img', 'aria-label': label },
    draw('title', null, label),
    draw('line', { x1: 4, x2: width - 4, y1: 8, y2: 8, stroke: 'var(--line)' }),
    own && draw('line', { x1: x(own[1]), x2: x(own[2]), y1: 8, y2: 8, stroke: 'var(--blue)', 'stroke-width': 4, 'stroke-opacity': .45 }),
    draw('circle', { cx: x(policy.S), cy: 8, r: 4, fill: policy.hindsight ? 'var(--vermillion)' : 'var(--blue)' }));
}

function notes() {
  const lines = data.overview.policies.flatMap((policy) => policy.notes.map((note) => el('li', null, `${policy.name}: ${note}`)));
  return lines.length ? el('details', { open: lines.length < 4 }, el('summary', null, `${lines.length} notes on these runs`), el('ul', { class: 'small' }, lines)) : null;
}

function legend(names, colour) {
  return el('div', { class: 'legend' }, names.map((name) => el('span', null, el('i', { css: { background: colour(name) } }), words(name))));
}

/** Parts of a bar, [name, number, colour]; `total` is the full width. */
function strip(parts, total) {
  return el('div', { class: 'strip', 'aria-hidden': 'true' }, parts.filter(([, value]) => value > 0).map(([name, value, colour]) =>
    el('span', { title: `${words(name)}: ${value.toLocaleString('en-US', { maximumFractionDigits: 2 })}`, css: { width: `${100 * value / total}%`, background: colour } })));
}

function toolTable() {
  const { policies, tools, budget } = data.overview;
  const total = (policy) => Object.values(policy.tools).reduce((sum, value) => sum + value, 0);
  const most = Math.max(1, ...policies.map(total));
  return el('div', { class: 'scroll' }, el('table', null,
    el('thead', null, el('tr', null, ['policy', 'calls an episode, by tool', 'calls', 'buy', 'credits', 'of B', 'forecasts bought an episode', 'refused or failed calls'].map((title, place) =>
      el('th', { scope: 'col', class: [0, 1, 6, 7].includes(place) ? 'left' + (place ? '' : ' name') : null }, title)))),
    el('tbody', null, policies.map((policy) => el('tr', null,
      el('th', { scope: 'row', class: 'left name' }, broken(policy.name)),
      el('td', { class: 'left' }, strip(tools.map((tool) => [tool, policy.tools[tool] ?? 0, toolColour(tool)]), most),
        el('span', { class: 'sr' }, Object.entries(policy.tools).map(([tool, value]) => `${tool} ${value.toFixed(2)}`).join(', '))),
      el('td', null, total(policy).toFixed(2)),
      el('td', null, percent(policy.bought)),
      el('td', null, whole(policy.credits)),
      el('td', null, percent(policy.credits / budget)),
      el('td', { class: 'left' }, Object.entries(policy.models).map(([name, value]) => `${name} ${value.toFixed(2)}`).join(', ') || NONE),
      el('td', { class: 'left' }, Object.entries(policy.call_errors).map(([name, count]) => `${words(name)} ${whole(count)}`).join(', ') || NONE))))));
}

function outcomeTable() {
  const { policies, outcomes } = data.overview;
  return el('div', { class: 'scroll' }, el('table', null,
    el('thead', null, el('tr', null, el('th', { scope: 'col', class: 'left name' }, 'policy'), el('th', { scope: 'col', class: 'left' }, 'share'),
      outcomes.map((name) => el('th', { scope: 'col' }, words(name))), el('th', { scope: 'col', class: 'left' }, 'named faults'))),
    el('tbody', null, policies.map((policy) => el('tr', null,
      el('th', { scope: 'row', class: 'left name' }, broken(policy.name)),
      el('td', { class: 'left' }, strip(outcomes.map((name, place) => [name, policy.outcomes[place], OUTCOME_COLOURS[name]]), policy.episodes)),
      policy.outcomes.map((count, place) => el('td', null, count ? el('a', { href: hashOf({ view: 'episodes', policy: policy.name, outcome: outcomes[place] }) }, whole(count)) : '0')),
      el('td', { class: 'left' }, Object.entries(policy.faults).map(([name, count]) => `${words(name)} ${whole(count)}`).join(', ') || NONE))))));
}

function cohortTable() {
  const { policies, cells } = data.overview;
  const scores = policies.map((policy) => new Map(policy.cells.map(([cohort, family, S]) => [`${cohort} ${family}`, S])));
  const bounds = cells.map((cell) => {
    const known = policies.flatMap((policy, place) => (policy.hindsight ? [] : [scores[place].get(cell.join(' '))])).filter((value) => value !== undefined && value !== null);
    return [Math.min(...known), Math.max(...known)];
  });
  const shade = (policy, value, [low, high]) =>
    policy.hindsight || value === undefined || value === null || high <= low ? 0 : Math.round(45 * Math.log1p(value - low) / Math.log1p(high - low));
  return el('div', { class: 'scroll' }, el('table', null,
    el('thead', null, el('tr', null, el('th', { scope: 'col', class: 'left name' }, 'policy'),
      cells.map(([cohort, family]) => el('th', { scope: 'col', class: 'cell' }, cohort, el('br'), words(family))))),
    el('tbody', null, policies.map((policy, place) => el('tr', null, el('th', { scope: 'row', class: 'left name' }, broken(policy.name)),
      cells.map((cell, number) => {
        const value = scores[place].get(cell.join(' '));
        return el('td', { css: { background: `color-mix(in srgb, var(--orange) ${shade(policy, value, bounds[number])}%, transparent)` } }, fixed(value));
      }))))));
}

function runTable() {
  const columns = ['cases', 'repeats', 'seed', 'pool', 'mode', 'form', 'style', 'digest'];
  return el('div', { class: 'scroll' }, el('table', null,
    el('thead', null, el('tr', null, el('th', { scope: 'col', class: 'left name' }, 'policy'), ['cases', 'repeats', 'seed', 'tools', 'prompts', 'answers', 'style', 'configuration'].map((name) => el('th', { scope: 'col' }, name)), el('th', { scope: 'col', class: 'left' }, 'options'))),
    el('tbody', null, data.overview.policies.map((policy) => el('tr', null, el('th', { scope: 'row', class: 'left name' }, broken(policy.name)),
      columns.map((name) => el('td', null, String(policy[name]))),
      el('td', { class: 'left wrap mono' }, Object.keys(policy.options).length ? JSON.stringify(policy.options) : NONE))))));
}
