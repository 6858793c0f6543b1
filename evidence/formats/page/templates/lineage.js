const rows = new Map([...document.querySelectorAll('.graph > li')].map(row => [row.id, row]));
const up = id => rows.get(id).dataset.up.split(' ').filter(Boolean);
const down = new Map([...rows.keys()].map(id => [id, []]));
for (const id of rows.keys()) for (const parent of up(id)) down.get(parent).push(id);
const reach = (id, next, found = new Set()) => {
  for (const other of next(id)) if (!found.has(other)) { found.add(other); reach(other, next, found); }
  return found;
};
const paths = [...document.querySelectorAll('.rail path')];
const light = id => {
  const above = id ? reach(id, up).add(id) : new Set();
  const below = id ? reach(id, other => down.get(other)).add(id) : new Set();
  document.body.classList.toggle('lit', Boolean(id));
  for (const [other, row] of rows) row.classList.toggle('on', above.has(other) || below.has(other));
  for (const path of paths) {
    const by = path.dataset.by.split(' '), to = path.dataset.to;
    path.classList.toggle('on', by.some(from => (above.has(from) && above.has(to)) || (below.has(from) && below.has(to))));
  }
};
const rowOf = target => target instanceof Element ? target.closest('.graph > li') : null;
const graph = document.querySelector('.graph');
const named = () => rows.get(decodeURIComponent(location.hash.slice(1)))?.id ?? null;
let held = null;  // the row with the keyboard's focus, or else the one in the address
const hold = id => light(held = id);
graph.addEventListener('pointerover', event => { if (event.pointerType === 'mouse') light(rowOf(event.target)?.id ?? held); });
graph.addEventListener('pointerleave', () => light(held));
graph.addEventListener('focusin', event => hold(rowOf(event.target)?.id ?? null));
graph.addEventListener('focusout', () => hold(named()));
const openNamed = () => {
  const row = rows.get(named());
  if (!row) return;
  row.firstElementChild.open = true;
  row.querySelector('summary').focus();
  hold(row.id);
};
addEventListener('hashchange', openNamed);
openNamed();
