'use strict';
{
const D = document, root = D.documentElement, nav = D.querySelector('nav'), tabs = [...nav.querySelectorAll('a')];
root.classList.add('js');
nav.setAttribute('role', 'tablist');
for (const tab of tabs) {
  tab.setAttribute('role', 'tab');
  tab.setAttribute('aria-controls', tab.hash.slice(1));
  D.querySelector(tab.hash).setAttribute('role', 'tabpanel');
}
const show = (id, focus) => {
  const chosen = tabs.find(tab => tab.hash === '#' + id) || tabs[0];
  for (const tab of tabs) {
    const on = tab === chosen;
    tab.setAttribute('aria-selected', on);
    tab.tabIndex = on ? 0 : -1;
    D.querySelector(tab.hash).classList.toggle('on', on);
  }
  if (focus) chosen.focus();
};
const top_ = () => requestAnimationFrame(() => {
  const found = location.hash && D.getElementById(location.hash.slice(1));
  if (!found || found.matches('section')) return scrollTo(0, 0);
  found.closest('details')?.setAttribute('open', '');
  found.scrollIntoView({block: 'center'});
});
addEventListener('hashchange', () => { show(location.hash.slice(1)); top_(); });
addEventListener('load', top_);
show(location.hash.slice(1));
nav.addEventListener('keydown', event => {
  const way = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!way) return;
  event.preventDefault();
  const next = tabs[(tabs.indexOf(D.activeElement) + way + tabs.length) % tabs.length];
  history.replaceState(0, '', next.hash);
  show(next.hash.slice(1), true);
});
const theme = D.getElementById('theme');
theme.hidden = false;
theme.onclick = () => {
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme:dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
};
for (const find of D.querySelectorAll('.find')) {
  const rows = [...find.closest('.table').querySelectorAll('tbody tr')].map(row => [row, row.textContent.toLowerCase()]);
  const input = find.querySelector('input'), output = find.querySelector('output');
  const go = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const [row, text] of rows) {
      const shown = words.every(word => text.includes(word));
      row.hidden = !shown;
      count += shown;
    }
    output.value = `${count} of ${rows.length}`;
  };
  find.hidden = false;
  input.oninput = go;
  go();
}
const tip = D.getElementById('tip');
const say = (text, x, y) => {
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = Math.min(y + 14, innerHeight - tip.offsetHeight - 8) + 'px';
};
for (const svg of D.querySelectorAll('svg[data-x]')) {
  const chart = JSON.parse(svg.dataset.x), cursor = svg.querySelector('.cur'), last = chart.x.length - 1;
  const low = Math.min(...chart.x), high = Math.max(...chart.x);
  let at = 0;
  svg.setAttribute('tabindex', 0);
  const go = (place, x, y) => {
    at = Math.max(0, Math.min(last, place));
    const pixel = chart.l + (high > low ? (chart.x[at] - low) / (high - low) : .5) * chart.w;
    cursor.setAttribute('x1', pixel);
    cursor.setAttribute('x2', pixel);
    const box = svg.getBoundingClientRect();
    const words = chart.s.map(one => `${one.n} ${one.v[at] ?? 'missing'}`).join(', ');
    say(`step ${chart.x[at]}: ${words}`, x ?? box.left + pixel / chart.W * box.width, y ?? box.top + 40);
  };
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect();
    const step = low + ((event.clientX - box.left) / box.width * chart.W - chart.l) / chart.w * (high - low);
    let place = 0;
    while (place < last && chart.x[place] < step) place++;
    go(place, event.clientX, event.clientY);
  };
  svg.onpointerleave = svg.onblur = () => say('');
  svg.onkeydown = event => {
    const way = {ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25, Home: -1e9, End: 1e9}[event.key];
    if (way) { event.preventDefault(); go(at + way); }
  };
}
for (const svg of D.querySelectorAll('svg[data-h]')) {
  const map = JSON.parse(svg.dataset.h), image = new Image(), rows = map.n.length, columns = map.x.length;
  const canvas = D.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const signs = {'179,38,30': 'exactly 0', '255,0,255': 'not finite', '150,150,150': 'missing'};
  let row = 0, column = 0, shades;
  image.onload = () => {
    canvas.canvas.width = columns;
    canvas.canvas.height = rows;
    canvas.drawImage(image, 0, 0);
  };
  image.src = svg.querySelector('image').getAttribute('href');
  const anchors = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const value = () => {
    const pixel = [...canvas.getImageData(column, row, 1, 1).data.slice(0, 3)];
    if (signs[pixel]) return signs[pixel];
    shades ??= Array.from({length: map.k}, (_, turn) => {
      const part = turn / (map.k - 1) * 4, from = Math.min(Math.floor(part), 3);
      return anchors[from].map((one, index) => one + (anchors[from + 1][index] - one) * (part - from));
    });
    const away = shades.map(shade => shade.reduce((sum, one, index) => sum + (one - pixel[index]) ** 2, 0));
    const turn = away.indexOf(Math.min(...away));
    return 'about ' + (10 ** (map.lo + turn / (map.k - 1) * (map.hi - map.lo))).toPrecision(2);
  };
  const go = (x, y) => {
    row = Math.max(0, Math.min(rows - 1, row));
    column = Math.max(0, Math.min(columns - 1, column));
    const box = svg.getBoundingClientRect();
    const left = box.left + (map.l + (column + .5) / columns * map.w) / map.W * box.width;
    const above = box.top + (map.t + (row + .5) / rows * map.h) / map.H * box.height;
    say(`${map.n[row]}, step ${map.x[column]}: ${value()}`, x ?? left, y ?? above);
  };
  svg.setAttribute('tabindex', 0);
  svg.onpointermove = event => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width * map.W - map.l) / map.w;
    const y = ((event.clientY - box.top) / box.height * map.H - map.t) / map.h;
    if (x < 0 || y < 0 || x >= 1 || y >= 1) return say('');
    row = Math.floor(y * rows);
    column = Math.floor(x * columns);
    go(event.clientX, event.clientY);
  };
  svg.onpointerleave = svg.onblur = () => say('');
  svg.onkeydown = event => {
    const way = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    if (way) { event.preventDefault(); row += way[0]; column += way[1]; go(); }
  };
}
}
