// Views by address, keys, theme.

async function show() {
  const parts = readHash();
  const main = document.getElementById('main');
  const name = parts.episode ? 'episode' : parts.view === 'episodes' ? 'episodes' : 'overview';
  const view = name === 'episode' ? await episodeView(parts) : name === 'episodes' ? episodesView(parts) : overviewView();
  main.replaceChildren(...view.filter(Boolean));
  main.dataset.view = name;
  for (const link of document.querySelectorAll('nav a')) {
    const current = link.dataset.view === name || (name === 'episode' && link.dataset.view === 'episodes');
    link[current ? 'setAttribute' : 'removeAttribute']('aria-current', 'page');
  }
  if (name === 'overview') frontier(document.getElementById('frontier'));
  if (name === 'episodes') showRows();
  if (name === 'episode') {
    viewer.redraw?.();
    if (viewer.row && document.getElementById('steps')) showStep();
  }
  window.scrollTo(0, 0);
}

function keyPressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { view } = document.getElementById('main').dataset;
  if (document.getElementById('keys').open) return;
  if (event.target.matches('input, select, textarea')) {
    if (event.key === 'Escape' || (event.key === 'Enter' && event.target.type === 'search')) {
      event.target.blur();
      if (view === 'episodes' && event.key === 'Enter') moveSelection(1);
      event.preventDefault();
    }
    return;
  }
  const act = keysOf(view)[event.key];
  if (!act) return;
  act();
  event.preventDefault();
}

function keysOf(view) {
  const common = {
    o: () => { location.hash = '#view=overview'; },
    e: () => { location.hash = '#view=episodes'; },
    t: nextTheme,
    '?': () => document.getElementById('keys').showModal(),
    '/': focusFilter,
  };
  if (view === 'overview') return { ...common, j: () => movePolicy(1), k: () => movePolicy(-1), ...(ranking.selected < 0 ? {} : { Enter: openPolicy }) };
  if (view === 'episodes') {
    const chosen = list.rows[list.selected];
    return { ...common, j: () => moveSelection(1), k: () => moveSelection(-1), ...(chosen ? { Enter: () => { location.hash = episodeHash(chosen); } } : {}) };
  }
  const neighbour = (change) => () => {
    const place = list.rows.indexOf(viewer.row);
    const next = list.rows[Math.min(Math.max(place + change, 0), list.rows.length - 1)];
    if (next) location.hash = episodeHash(next);
  };
  return {
    ...common, j: neighbour(1), k: neighbour(-1), Escape: () => { location.hash = hashOf({ ...list.filters, view: 'episodes' }); },
    ArrowRight: () => goToStep(viewer.step + 1), ArrowLeft: () => goToStep(viewer.step - 1),
  };
}

function movePolicy(change) {
  const rows = [...document.querySelectorAll('#ranking tr.row')];
  ranking.selected = Math.min(Math.max(ranking.selected + change, 0), rows.length - 1);
  rows.forEach((row, place) => row.setAttribute('aria-current', String(place === ranking.selected)));
  rows[ranking.selected]?.scrollIntoView({ block: 'nearest' });
}

function openPolicy() {
  document.querySelectorAll('#ranking tr.row')[ranking.selected]?.click();
}

async function focusFilter() {
  if (document.getElementById('main').dataset.view !== 'episodes') {
    history.pushState(null, '', hashOf({ ...list.filters, view: 'episodes' }));
    await show();
  }
  document.getElementById('filter').focus();
}

const THEMES = ['system', 'light', 'dark'];

function setTheme(theme) {
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.getElementById('theme').textContent = `Theme: ${theme}`;
  try { localStorage.setItem('castgym-theme', theme); } catch { /* a page from a file may have no storage */ }
}

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? 'system';
  setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
}

async function start() {
  document.getElementById('theme').addEventListener('click', nextTheme);
  document.getElementById('help').addEventListener('click', () => document.getElementById('keys').showModal());
  try { setTheme(THEMES.find((theme) => theme === localStorage.getItem('castgym-theme')) ?? 'system'); } catch { setTheme('system'); }
  try {
    await loadData();
  } catch (error) {
    document.getElementById('loading').textContent = `The data could not be unpacked (${error}). This page needs a browser from 2023 or later.`;
    return;
  }
  document.getElementById('title').textContent = `castgym report: ${data.overview.title}`;
  window.addEventListener('hashchange', show);
  document.addEventListener('keydown', keyPressed);
  let waiting = 0;
  window.addEventListener('resize', () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const place = document.getElementById('frontier');
      if (place) frontier(place);
      viewer.redraw?.();
    }, 120);
  });
  await show();
}

start();
