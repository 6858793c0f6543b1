for (const box of document.querySelectorAll('.browser')) {
  const entries = [...box.querySelectorAll(':scope > details')];
  const form = document.createElement('form');
  const count = document.createElement('output');
  const tests = [];
  form.className = 'filters';
  form.onsubmit = () => false;
  const show = () => {
    for (const entry of entries) entry.hidden = !tests.every(test => test(entry));
    count.textContent = entries.filter(entry => !entry.hidden).length + ' of ' + entries.length + ' shown';
  };
  const add = (name, control) => {
    const label = document.createElement('label');
    label.append(name + ' ', control);
    form.append(label);
    control.oninput = show;
  };
  for (const tag of box.dataset.by.split(' ')) {
    const select = document.createElement('select');
    select.add(new Option('all', ''));
    for (const value of [...new Set(entries.map(entry => entry.dataset[tag]))].sort()) {
      select.add(new Option(value, value));
    }
    tests.push(entry => !select.value || entry.dataset[tag] === select.value);
    add(tag, select);
  }
  const words = document.createElement('input');
  words.type = 'search';
  tests.push(entry => entry.textContent.toLowerCase().includes(words.value.toLowerCase()));
  add('words', words);
  form.append(count);
  box.prepend(form);
  show();
}
