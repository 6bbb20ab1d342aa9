// The pages follow the ledger: after a change of it, the content is read again from the server, and put in place of
// what differs. What a person uses stays: an open form, a selected row, a selected text, and the row under the pointer.
"use strict";
(() => {
  const body = document.body, root = document.documentElement, base = body.dataset.base;
  const one = (selector, of = document) => of.querySelector(selector), all = (selector, of = document) => [...of.querySelectorAll(selector)];
  const banner = one("#banner"), live = one("#live"), pill = one("#held"), content = () => one("#content");
  const isField = (e) => e && /^(INPUT|SELECT|TEXTAREA)$/.test(e.tagName);

  // Put what differs in place.
  let held = null, waiting = 0;
  const keyOf = (n) => (n.nodeType === 1 ? n.dataset.key || n.id : "");
  const isUsed = (e) => {
    const active = document.activeElement, selection = getSelection();
    return one("details[open] form", e) !== null || one("input[type=checkbox]:checked", e) !== null ||
      (e.contains(active) && isField(active)) || (!selection.isCollapsed && selection.containsNode(e, true));
  };
  const isPart = (e) => e.dataset.key !== undefined || e.matches("details, pre, form:not(:has([data-key]))");
  const morph = (from, to) => {
    if (from.isEqualNode(to)) return;
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || keyOf(from) !== keyOf(to)) { from.replaceWith(to); return; }
    if (from.nodeType !== 1) { from.nodeValue = to.nodeValue; return; }
    if (isPart(from) && isUsed(from)) return;
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name) && !/^(open|aria-selected|tabindex)$/.test(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value && name !== "open") from.setAttribute(name, value);
    if (isField(from) && from.type !== "hidden") return;
    children(from, to);
  };
  const children = (from, to) => {
    const known = new Map([...from.childNodes].filter(keyOf).map((n) => [keyOf(n), n]));
    const wanted = new Set([...to.childNodes].filter(keyOf).map(keyOf));
    if (held && from.contains(held) && [...known.values()].includes(held)) { // the rows hold still under the pointer
      let others = 0;
      for (const next of [...to.childNodes]) {
        if (known.has(keyOf(next))) morph(known.get(keyOf(next)), next); else if (keyOf(next)) others++;
      }
      waiting += others || [...known.keys()].filter((k) => !wanted.has(k)).length;
      return;
    }
    for (const [k, n] of known) if (!wanted.has(k) && !isUsed(n)) n.remove();
    let at = from.firstChild;
    for (const next of [...to.childNodes]) {
      while (at && keyOf(at) && !wanted.has(keyOf(at))) at = at.nextSibling; // a row in use, which the server no longer has
      const same = known.get(keyOf(next));
      if (same) {
        if (same === at) at = at.nextSibling; else if (from.moveBefore) from.moveBefore(same, at); else from.insertBefore(same, at);
        morph(same, next);
      } else if (at && !keyOf(at) && !keyOf(next) && at.nodeName === next.nodeName) {
        const after = at.nextSibling;
        morph(at, next);
        at = after;
      } else {
        if (next.tagName === "TR") next.classList.add("changed");
        from.insertBefore(next, at);
      }
    }
    while (at) { const after = at.nextSibling; if (!(at.nodeType === 1 && isUsed(at))) at.remove(); at = after; }
  };
  document.addEventListener("pointerover", (e) => {
    const row = e.pointerType === "mouse" && content()?.contains(e.target) ? e.target.closest("tr[data-key], li[data-key]") : null;
    if (held && !row && waiting) read();
    held = row;
    const time = e.target.closest("time[datetime]");
    if (time && !time.dataset.local) {
      time.dataset.local = "yes";
      time.title += "\n" + new Date(time.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    }
    const bar = e.target.closest("[data-say]"), readout = bar?.closest("figure")?.querySelector(".readout");
    if (readout) readout.textContent = bar.dataset.say;
  });
  root.addEventListener("pointerleave", () => { held = null; if (waiting) read(); });

  // Read the page again.
  const isFollowed = "live" in body.dataset && window.EventSource;
  let isLive = true, isBusy = false, isDue = false, isLost = false, hasEnded = false, last = Date.now(), source = null;
  const show = (text) => { banner.textContent = text; banner.hidden = text === ""; };
  const script = (page) => one("script[src]", page).getAttribute("src");
  const read = async () => {
    if (!isFollowed || isBusy || !isLive || document.hidden) return;
    isBusy = true; isDue = false; last = Date.now();
    try {
      // A server that hangs keeps the connection open: without a limit the page would never be read again.
      const answer = await fetch(location.href, { credentials: "same-origin", signal: AbortSignal.timeout(20000) });
      if (answer.status === 401) {
        isLive = false; hasEnded = true;
        source.close();
        show("The session has ended. Reload the page to sign in; a form that is sent now changes nothing.");
        return;
      }
      if (!answer.ok) { show(`The server answers with status ${answer.status}. The page is read again every few seconds.`); return; }
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      show("");
      if (isLost && source.readyState === EventSource.CLOSED) follow();
      if (script(next) !== script(document)) { // the server has another version now
        if (isUsed(content())) show("The server has another version now. Reload the page when you are done."); else location.reload();
        return;
      }
      waiting = 0;
      for (const part of ["nav", "#content", "#moment"]) if (one(part) && one(part, next)) morph(one(part), one(part, next));
      for (const part of ["title", "link[rel=icon]"]) if (!one(part).isEqualNode(one(part, next))) one(part).replaceWith(one(part, next));
      pill.textContent = `${waiting} new: show`;
      pill.hidden = waiting === 0;
      dress();
    } catch (e) {
      if (!(e instanceof TypeError || e instanceof DOMException)) throw e;
      show("The server does not answer. The page is read again when it does.");
    } finally { isBusy = false; }
  };
  pill.addEventListener("click", () => { held = null; read(); });
  // The browser opens a stream again that breaks off, but not one whose answer was an error.
  const follow = () => {
    if (body.dataset.live === "poll") { source = { close() {} }; return; }
    source = new EventSource(base + "stream");
    source.addEventListener("change", () => { isDue = true; });
    source.addEventListener("open", () => { isLost = false; isDue = true; });
    source.addEventListener("error", () => { isLost = true; isDue = true; });
  };

  // The code of a link is in the fragment, which no server, log or Referer contains. A click sends it in a form, so that
  // a link of another person does not sign in unnoticed.
  const signIn = one("#sign-in");
  const takeLink = () => {
    const code = location.hash.slice(1);
    if (!signIn || !/^tll_\w+$/.test(code)) return;
    history.replaceState(null, "", location.pathname + location.search);
    one("input[name=token]", signIn).value = code;
    one("label", signIn).hidden = true;
    one("#linked").hidden = false;
    one("button", signIn).focus();
  };
  takeLink();
  addEventListener("hashchange", takeLink);

  // Filters of tasks that this browser keeps.
  const filtersKey = "taskledger_filters " + base;
  const filters = () => { try { return JSON.parse(localStorage.getItem(filtersKey)) || []; } catch { return []; } };
  const filterOf = () => {
    const query = new URLSearchParams(location.search);
    for (const name of [...query.keys()]) if (name.startsWith("after")) query.delete(name);
    return query.toString();
  };
  const showFilters = () => {
    const list = one("#saved"), button = one("#save"), kept = filters(), here = filterOf();
    if (!list) return;
    list.replaceChildren(...kept.map((query) => {
      const link = document.createElement("a");
      link.className = "chip";
      link.href = base + "tasks?" + query;
      link.textContent = [...new URLSearchParams(query)].map(([name, value]) => (name === "state" ? value : `${name}: ${value}`)).join(", ");
      if (query === here) link.setAttribute("aria-current", "true");
      return link;
    }));
    button.hidden = here === "";
    button.textContent = kept.includes(here) ? "Forget this filter" : "Keep this filter";
  };
  document.addEventListener("click", (e) => {
    if (e.target.id !== "save") return;
    const kept = filters(), here = filterOf();
    const next = kept.includes(here) ? kept.filter((f) => f !== here) : [...kept, here].slice(-12);
    try { localStorage.setItem(filtersKey, JSON.stringify(next)); } catch { return; } // the browser stores nothing
    showFilters();
  });

  // Buttons that need a script.
  const dress = () => {
    for (const button of all("[data-copy]")) button.hidden = !navigator.clipboard;
    const marked = all("tbody input[type=checkbox][name=key]:checked").length, note = one("#selected");
    if (note) note.textContent = `${marked} selected`;
    const whole = one("#all");
    if (whole) whole.hidden = false;
    showFilters();
  };
  let lastBox = null;
  document.addEventListener("click", (e) => {
    const copy = e.target.closest("[data-copy]");
    if (copy) {
      navigator.clipboard.writeText(copy.dataset.copy || one(copy.dataset.of).textContent);
      const label = copy.textContent;
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = label; }, 1500);
    }
    const boxes = all("tbody input[type=checkbox][name=key]");
    if (e.target.id === "all") for (const box of boxes) box.checked = e.target.checked;
    if (boxes.includes(e.target)) {
      if (e.shiftKey && boxes.includes(lastBox)) {
        const [a, b] = [boxes.indexOf(lastBox), boxes.indexOf(e.target)].sort((x, y) => x - y);
        for (const box of boxes.slice(a, b + 1)) box.checked = e.target.checked;
      }
      lastBox = e.target;
    }
    if (e.target.type === "checkbox") dress();
    for (const open of all("details.act[open]")) if (!open.contains(e.target)) open.open = false;
  });
  const theme = one("#theme");
  if (theme) {
    const names = ["", "light", "dark"], label = () => { theme.textContent = "Theme: " + (root.dataset.theme || "system"); };
    theme.hidden = false;
    label();
    theme.addEventListener("click", () => {
      const next = names[(names.indexOf(root.dataset.theme || "") + 1) % 3];
      if (next) root.dataset.theme = next; else delete root.dataset.theme;
      document.cookie = `taskledger_theme=${next}; path=${base}; max-age=31536000; samesite=strict` + (location.protocol === "https:" ? "; secure" : "");
      label();
    });
  }

  // The palette and the keyboard.
  const palette = one("#palette");
  let asked = 0;
  const open = () => { if (palette && !palette.open) { palette.showModal(); one("input", palette).select(); look(); } };
  const look = async () => {
    const now = ++asked;
    const answer = await fetch(base + "find?" + new URLSearchParams({ q: one("input", palette).value }), { credentials: "same-origin" }).catch(() => null);
    if (!answer?.ok || now !== asked) return;
    const found = one("#found", new DOMParser().parseFromString(await answer.text(), "text/html"));
    if (found) { one("#hits").replaceChildren(...found.childNodes); choose(0); }
  };
  const choose = (step) => {
    const links = all("#hits a"), at = links.findIndex((a) => a.getAttribute("aria-selected") === "true");
    links.forEach((a) => a.setAttribute("aria-selected", "false"));
    const next = links[Math.min(Math.max(at < 0 ? 0 : at + step, 0), links.length - 1)];
    if (next) { next.setAttribute("aria-selected", "true"); next.scrollIntoView({ block: "nearest" }); }
    return next;
  };
  if (palette) {
    one("input", palette).addEventListener("input", () => setTimeout(look, 60));
    palette.addEventListener("keydown", (e) => {
      if (e.key === "ArrowDown" || e.key === "ArrowUp") { e.preventDefault(); choose(e.key === "ArrowDown" ? 1 : -1); }
      if (e.key === "Enter") { const link = choose(0); if (link) { e.preventDefault(); location.href = link.href; } }
    });
    palette.addEventListener("click", (e) => { if (e.target === palette) palette.close(); });
    if (matchMedia("(min-width: 821px)").matches) one(".jump input").placeholder += "  Ctrl K";
    one(".jump")?.addEventListener("focusin", () => { one(".jump input").blur(); open(); });
  }
  const select = (step) => {
    const rows = all("#content tr[data-key], #content li[data-key]").filter((r) => r.offsetParent !== null);
    const at = rows.findIndex((r) => r.getAttribute("aria-selected") === "true");
    rows.forEach((r) => r.removeAttribute("aria-selected"));
    const row = rows[Math.min(Math.max(at + step, 0), rows.length - 1)];
    if (row) { row.setAttribute("aria-selected", "true"); row.scrollIntoView({ block: "nearest" }); }
  };
  document.addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); open(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || isField(document.activeElement) || palette?.open) return;
    const row = one('#content [aria-selected="true"]'), box = row && one("input[type=checkbox]", row);
    if (e.key === "/") { const search = one("#search"); if (search) { e.preventDefault(); search.focus(); } }
    else if (e.key === "j" || e.key === "k") select(e.key === "j" ? 1 : -1);
    else if (e.key === "x" && box) { box.click(); }
    else if (e.key === "Enter" && row && document.activeElement === body) one("a.id, a", row)?.click();
    else if (e.key === "r") {
      const form = row && one("details.act", row);
      if (form) { e.preventDefault(); form.open = true; one("input:not([type=hidden])", form)?.focus(); return; }
      if (box && !one("tbody input[type=checkbox]:checked")) box.click();
      const button = one(".bar-selected button[value=release]") ?? one(".story button[value=release]");
      if (button && (!box || one("tbody input[type=checkbox]:checked"))) button.click();
    } else if (e.key === "Escape") for (const d of all("details.act[open]")) d.open = false;
  });

  if (matchMedia("(max-width: 600px)").matches && one("#tree")) one("#tree").open = true; // the graph is cut off
  dress();
  if (!isFollowed) return;
  // A browser opens at most six connections to a server by HTTP/1.1: a page in the background holds none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (!hasEnded) { source.close(); follow(); isDue = true; }
  });
  follow();
  if (document.hidden) source.close();
  setInterval(() => {
    const age = Date.now() - last;
    if (age > (isLost ? 5000 : 15000) || isDue && age > 2000) read();
  }, 500);
  live.hidden = false;
  live.addEventListener("click", () => {
    isLive = !isLive;
    live.setAttribute("aria-pressed", String(isLive));
    live.textContent = isLive ? "live" : "paused";
  });
})();
