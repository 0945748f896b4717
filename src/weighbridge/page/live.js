'use strict';
{
const note = document.getElementById('live'), root = document.documentElement;
if (sessionStorage.theme) root.dataset.theme = sessionStorage.theme;
addEventListener('pagehide', () => { if (root.dataset.theme) sessionStorage.theme = root.dataset.theme; });
const poll = setInterval(async () => {
  try {
    const answer = await fetch('digest', {cache: 'no-store'});
    const typing = document.activeElement.matches('input');
    if (answer.ok && !typing && await answer.text() !== note.dataset.digest) location.reload();
  } catch {
    note.textContent = 'Nobody serves this page any more: it stands as it was drawn last.';
    clearInterval(poll);
  }
}, 2000);
}
