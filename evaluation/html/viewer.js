// The third view: one episode. Its plan against the truth and the oracle, and what was said, step by step.

const viewer = { row: null, episode: null, step: 0, shown: new Set(), redraw: null };

async function episodeView(parts) {
  const row = data.rows.find((item) => caseId(item.case) === parts.episode && policyOf(item).name === parts.policy && item.repeat === Number(parts.repeat ?? 0))
    ?? data.rows.find((item) => caseId(item.case) === parts.episode);
  if (!row) return [el('h2', null, 'No such episode'), el('p', null, `This report has no episode of ${parts.episode}. `, el('a', { href: '#view=episodes' }, 'All episodes'))];
  if (viewer.row?.case !== row.case) viewer.shown = new Set();
  viewer.row = row;
  viewer.episode = row.full === null ? null : await episodeInFull(row.full);
  viewer.step = Math.min(Math.max(Number(parts.step ?? 1) - 1, 0), lastStep());
  if (!list.rows.length) chooseRows({});
  const place = list.rows.indexOf(row);
  if (place >= 0) list.selected = place;
  const number = row.case;
  return [
    el('p', { class: 'small' }, el('a', { id: 'back', href: hashOf({ ...list.filters, view: 'episodes' }) }, '← all episodes'),
      place >= 0 && el('span', { class: 'muted' }, ` · ${whole(place + 1)} of ${whole(list.rows.length)} · `),
      place > 0 && [el('a', { href: episodeHash(list.rows[place - 1]) }, 'previous'), ' '],
      place >= 0 && place < list.rows.length - 1 && el('a', { href: episodeHash(list.rows[place + 1]) }, 'next')),
    el('h2', { id: 'episode-title' }, caseId(number), el('span', { class: 'tag' }, policyOf(row).name), policyOf(row).repeats > 1 && el('span', { class: 'tag' }, `repeat ${row.repeat + 1} of ${policyOf(row).repeats}`)),
    episodeFacts(row),
    el('div', { class: 'chart', id: 'chart' }),
    peers(row),
    el('h2', null, 'Steps'),
    viewer.episode ? null : el('p', { class: 'muted' }, row.full === null && data.overview.transcripts.kept ? 'The prompts and responses of this episode are not on this page: the calls that it made follow.' : 'This run kept no prompts and responses: the calls that it made follow.'),
    el('div', { class: 'columns' }, el('ol', { class: 'steps', id: 'steps', 'aria-label': 'steps' }), el('section', { class: 'step', id: 'step' })),
  ];
}

const lastStep = () => (viewer.episode ? viewer.episode.steps.length : viewer.row.calls.length + 1) - 1;

function episodeFacts(row) {
  const fact = (name, value) => el('span', null, `${name} `, el('b', null, value));
  return el('div', { class: 'facts' },
    row.outcome === 'completed' ? fact('outcome', 'completed') : el('span', null, 'outcome ', el('span', { class: 'bad' }, words(row.outcome)), row.fault && row.fault !== row.outcome ? ` (${words(row.fault)})` : ''),
    fact('S', fixed(row.S)), fact('R', fixed(row.R)), fact('loss', fixed(row.loss)), fact('floor', fixed(data.cases.floor[row.case])),
    fact('credits', whole(row.credits)), fact('calls', String(row.calls.length)), fact('seconds', String(row.seconds)),
    fact('cohort', caseFact('cohort', row.case)), fact('lead', words(caseFact('family', row.case))), fact('group', caseFact('group_id', row.case)));
}

/** What was considered and what others committed, with a box each to draw it. */
function peers(row) {
  const facts = caseCurves(row.case);
  const others = data.rows.filter((item) => item.case === row.case && item !== row && item.plan);
  const considered = (viewer.episode?.plans ?? []).filter((plan) => plan.plan);
  const entries = [
    ...considered.map((plan, place) => ({ id: `plan ${place}`, label: `${plan.id} ${plan.source}`, plan: plan.plan, credits: plan.credits, note: `considered in step ${plan.step + 1}, expected loss ${fixed(plan.expected)}`, on: true })),
    ...others.map((item) => ({ id: `row ${item.policy} ${item.repeat}`, label: policyOf(item).name + (policyOf(item).repeats > 1 ? ` ${item.repeat + 1}` : ''), plan: item.plan, credits: item.credits, S: item.S, row: item, on: false })),
  ];
  for (const entry of entries) if (entry.on && !viewer.shown.has(`-${entry.id}`)) viewer.shown.add(entry.id);
  viewer.redraw = () => {
    const place = document.getElementById('chart');
    if (!place) return;
    if (!facts) { place.replaceChildren(el('p', { class: 'muted' }, 'No curves: the report was made without the case set.')); return; }
    const drawn = entries.filter((entry) => viewer.shown.has(entry.id)).map((entry, index) => ({
      label: entry.label, values: facts.capacities(entry.plan), colour: PLAN_COLOURS[index % PLAN_COLOURS.length], dash: entry.row ? '5 3' : null,
    }));
    const fixedPlans = [{ label: 'oracle', values: facts.oracle, colour: ORACLE, dash: '2 3' }];
    if (row.plan) fixedPlans.push({ label: 'committed', values: facts.capacities(row.plan), colour: COMMITTED, bold: true });
    const bands = (viewer.episode?.forecasts ?? []).filter((item) => item.bands).map((item) => ({ bands: item.bands.map((changes) => curve(changes, facts.peak)) }));
    caseCharts(place, facts, [...fixedPlans, ...drawn], bands);
  };
  const toggle = (entry) => (event) => {
    viewer.shown[event.target.checked ? 'add' : 'delete'](entry.id);
    viewer.shown[event.target.checked ? 'delete' : 'add'](`-${entry.id}`);
    viewer.redraw();
  };
  if (!entries.length) return null;
  return el('details', { open: considered.length > 0 }, el('summary', null, `Plans: ${considered.length} considered, ${others.length} committed in other episodes of this case`),
    el('div', { class: 'scroll plans' }, el('table', null,
      el('thead', null, el('tr', null, el('th', { scope: 'col', class: 'left' }, 'draw'), el('th', { scope: 'col' }, 'S'), el('th', { scope: 'col' }, 'credits'), el('th', { scope: 'col', class: 'left' }, ''))),
      el('tbody', null, entries.map((entry) => el('tr', null,
        el('td', { class: 'left' }, el('label', null, el('input', { type: 'checkbox', checked: viewer.shown.has(entry.id), change: toggle(entry) }), el('span', null, broken(entry.label)))),
        el('td', null, entry.S === undefined ? NONE : fixed(entry.S)), el('td', null, whole(entry.credits)),
        el('td', { class: 'left' }, entry.row ? el('a', { href: episodeHash(entry.row) }, 'open') : entry.note)))))));
}

function showStep() {
  const { row, episode } = viewer;
  const titles = episode
    ? episode.steps.map((step, place) => (place < row.calls.length ? data.calls[row.calls[place]] : 'final answer'))
    : [...row.calls.map((call) => data.calls[call]), 'final answer'];
  document.getElementById('steps').replaceChildren(...titles.map((title, place) => el('li', null,
    el('button', { type: 'button', 'aria-current': place === viewer.step ? 'step' : null, click: () => goToStep(place) }, `${place + 1}. ${title}`))));
  document.getElementById('step').replaceChildren(...[
    el('h3', null, `Step ${viewer.step + 1} of ${titles.length}`),
    el('p', null, el('button', { type: 'button', id: 'previous', disabled: viewer.step === 0, click: () => goToStep(viewer.step - 1) }, '← previous'), ' ',
      el('button', { type: 'button', id: 'next', disabled: viewer.step === titles.length - 1, click: () => goToStep(viewer.step + 1) }, 'next →')),
    episode ? stepInFull(episode.steps[viewer.step], viewer.step === titles.length - 1) : stepFromRow(titles[viewer.step]),
  ].flat().filter(Boolean));
}

function goToStep(step) {
  viewer.step = Math.min(Math.max(step, 0), lastStep());
  announce(`step ${viewer.step + 1} of ${lastStep() + 1}`);
  history.replaceState(null, '', episodeHash(viewer.row, viewer.step + 1));
  showStep();
}

function stepInFull(step, last) {
  const text = (number) => viewer.episode.texts[number];
  const messages = step.m.map(([role, number], place) => el('details', { open: place === step.m.length - 1 && place > 0 && !last },
    el('summary', null, `${role} (${whole(text(number).length)} characters)`), el('pre', { class: 'prompt' }, text(number))));
  return [
    el('h3', null, 'Response'),
    step.think >= 0 && el('details', null, el('summary', null, `thinking (${whole(text(step.think).length)} characters)`), el('pre', null, text(step.think))),
    step.say >= 0 && el('pre', { class: 'response' }, text(step.say)),
    step.calls.map((call) => el('pre', { class: 'call' }, text(call))),
    step.say < 0 && !step.calls.length && el('p', { class: 'muted' }, 'empty'),
    step.out.length > 0 && el('h3', null, step.out.length > 1 ? 'Results' : 'Result'),
    step.out.map((result, place) => [step.err[place] && el('p', { class: 'bad' }, words(step.err[place])), el('pre', { class: step.err[place] ? 'result error' : 'result' }, text(result))]).flat(),
    last && viewer.row.fault && el('p', null, 'Not accepted: ', el('span', { class: 'bad' }, words(viewer.row.fault))),
    el('h3', null, 'Prompt'), messages,
  ].flat();
}

function stepFromRow(title) {
  const plan = planOf(viewer.row.plan);
  const facts = caseCurves(viewer.row.case);
  if (title !== 'final answer') return [el('pre', { class: 'call' }, title)];
  if (!plan) return [el('p', { class: 'bad' }, viewer.row.fault ? words(viewer.row.fault) : 'no plan')];
  const blocks = facts ? facts.capacities(viewer.row.plan).map((value, block) => `b${String(block).padStart(2, '0')}  ${whole(value)} ${facts.unit}`).join('\n') : `grid steps ${plan.join(' ')}`;
  return [el('pre', { class: 'response' }, blocks)];
}
