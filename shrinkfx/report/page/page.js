"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const checks = new Map(data.checks.map((check) => [check.number, check]));
  const one = (selector, at = document) => at.querySelector(selector);
  const all = (selector, at = document) => [...at.querySelectorAll(selector)];

  // --- light or dark theme: the system's setting, until the button is pressed
  one("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // --- nested drawings that boxes open
  const toggle = (box) => {
    const inner = document.getElementById(box.dataset.opens);
    inner.open = !inner.open;
    if (inner.open) inner.scrollIntoView({ block: "nearest", behavior: "smooth" });
  };
  for (const box of all(".fold")) {
    const inner = document.getElementById(box.dataset.opens);
    const mark = () => box.classList.toggle("open", inner.open);
    inner.addEventListener("toggle", mark);
    mark();
    box.addEventListener("click", () => toggle(box));
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(box);
    });
  }

  // --- scroll kept operators into view if a drawing is wider than the page and they are
  // not visible at its left edge
  for (const frame of all(".before > .scroll, .inner > .scroll")) {
    const box = one(".culprit, .kept", frame);
    if (!box || frame.scrollWidth <= frame.clientWidth) continue;
    const [there, here] = [box.getBoundingClientRect(), frame.getBoundingClientRect()];
    if (there.right < here.right) continue;
    frame.scrollLeft = there.left - here.left - (here.width - there.width) / 2;
  }

  // --- the operators of a candidate: decode "0-3,7" to a set
  const members = (text) => {
    const found = new Set();
    for (const range of text ? text.split(",") : []) {
      const [first, last] = range.split("-").map(Number);
      for (let i = first; i <= (last ?? first); i++) found.add(i);
    }
    return found;
  };
  const lit = (kept, result) => {
    for (const box of all(".before [data-a], .folds [data-a]")) {
      let count = 0;
      for (let i = +box.dataset.a; i < +box.dataset.b; i++) count += kept.has(i);
      const culprit = result && "culprit" in box.dataset;
      box.classList.toggle("culprit", culprit);
      box.classList.toggle("kept", count > 0 && !culprit);
      box.classList.toggle("gone", count === 0);
      const number = one(".n", box);
      if (number) number.textContent = (count ? `${count}/` : "") + number.dataset.of;
    }
    for (const edge of all(".before .edge, .folds .edge")) {
      edge.classList.toggle("lit", result && edge.dataset.lit !== undefined);
    }
  };
  for (const edge of all(".before .edge.lit, .folds .edge.lit")) edge.dataset.lit = "";

  // --- a check: its details, and the command that exports its candidate
  // The run's folder: its absolute path if this page is opened there, so that the command
  // works in any folder. The file itself contains no path of the machine.
  const folder = () => {
    const name = data.folder.replace(/^'|'$/g, "").split("/").pop();
    const path = decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "");
    if (location.protocol !== "file:" || !path.endsWith(`/${name}`)) return data.folder;
    return /[^\w@%+=:,./-]/.test(path) ? `'${path.replaceAll("'", `'"'"'`)}'` : path;
  };
  const card = one("#card");
  let chosen = null;
  const choose = (number) => {
    chosen = checks.get(number);
    for (const old of all(".chosen")) old.classList.remove("chosen");
    for (const dot of all(`.dot[data-check="${number}"], [data-row="${number}"]`)) {
      dot.classList.add("chosen");
    }
    const say = (name, text) => { one(`.${name}`, card).textContent = text; };
    say("name", `Check ${number}: ${chosen.strategy}`);
    say("outcome", chosen.outcome);
    say("said", chosen.said);
    say("operators", chosen.operators);
    say("asked", `${chosen.form}, ${chosen.build} build, ${chosen.seconds} s`);
    say("digest", chosen.digest);
    const digest = chosen.digest.slice(0, 12);
    say("again", data.folder ? `shrinkfx --candidate ${digest} --out ${folder()}` : "");
    card.hidden = false;
  };
  for (const mark of all("[data-check]")) {
    mark.addEventListener("click", () => {
      choose(Number(mark.dataset.check));
      if (mark.closest("table")) card.scrollIntoView({ block: "center", behavior: "smooth" });
    });
  }
  const shown = one("#shown");
  one("#show")?.addEventListener("click", () => {
    if (!shown || !chosen) return;
    lit(members(chosen.keep), false);
    one("span", shown).textContent =
      `Highlighted: the ${chosen.operators} operators of check ${chosen.number}.`;
    shown.hidden = false;
    one("#program").scrollIntoView({ behavior: "smooth" });
  });
  one("#unshow")?.addEventListener("click", () => {
    lit(members(data.left), true);
    shown.hidden = true;
  });
  if (!shown && one("#show")) one("#show").hidden = true;

  // --- tables sorted by a column; a second click reverses the order
  for (const button of all(".sortable th button")) {
    button.addEventListener("click", () => {
      const head = button.parentElement;
      const column = [...head.parentElement.children].indexOf(head);
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = one("tbody", head.closest("table"));
      const value = (row) => {
        const cell = row.children[column];
        return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
      };
      const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
      const rows = [...body.rows].sort((a, b) => compare(value(a), value(b)));
      body.append(...(down ? rows.reverse() : rows));
    });
  }

  // --- copy to the clipboard, if the browser allows this for local files
  for (const button of all("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      }
    });
  }
})();
