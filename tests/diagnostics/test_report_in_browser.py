"""The report as a browser shows it, where there is one: from file://, without a message in its console, drawn at once however many events there are."""

import html
import json
import re
import shutil
import subprocess

import diagnosed as programs
import pytest

from kintsugi import cli

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
LOOK = """<script>
const keys = ['ArrowRight', 'ArrowRight', '+', '+', 'ArrowDown', 'Enter', '-', '0', 'End'];
addEventListener('load', () => {
  const opened = performance.now(), view = document.querySelector('.view'), drawn = document.querySelectorAll('.view .seg').length, holds = document.querySelectorAll('.view .holds').length;
  for (const key of keys) view.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
  setTimeout(() => {
    const found = {drawn, opened, told: document.querySelector('.told').textContent, wide: document.documentElement.scrollWidth <= innerWidth, ticks: document.querySelectorAll('.tick').length, holds};
    document.body.insertAdjacentHTML('beforeend', '<pre id="found"></pre>');
    document.getElementById('found').textContent = 'FOUND' + JSON.stringify(found) + 'END';
  }, 500);
});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no browser")
@pytest.mark.parametrize("width", [1280, 420])
def test_a_model_with_many_events(tmp_path, monkeypatch, kintsugi_clean, width):
    monkeypatch.chdir(tmp_path)
    program = programs.LAYERS.replace("        if x.sum() > 1e9:\n            x = x * 2\n",
                                      "        for i in range(20):\n            x = torch.sin(x)\n            if x.sum() > 1e9:\n                x = x * 2\n            print(end='')\n")
    (tmp_path / "script.py").write_text(program)
    assert cli.main(["report", "script.py", "-o", "out", "--repeat"]) == 0
    page = tmp_path / "out" / "index.html"
    text = page.read_text()
    data = json.loads(re.search(r'json">(.*?)</script>', text)[1])
    assert len(data["rows"][0][1]) > 480
    page.write_text(text.replace("</body>", LOOK + "</body>"))
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900",
               "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert "CONSOLE" not in done.stderr
    found = json.loads(html.unescape(re.search(r'<pre id="found">FOUND(.*)END</pre>', done.stdout)[1]))
    assert 10 < found["drawn"] < 800 and found["opened"] < 2000 and found["ticks"] >= 2 and found["wide"]
    assert found["holds"] > 10  # breaks are seen, though each is too narrow
    assert re.match(r"(call|kernels), (\d+) of \2: ", found["told"]), found
