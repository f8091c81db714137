"use strict";
// An element with data-live="ADDRESS" listens to the events of that address, and tells htmx what it hears:
// hx-trigger="live:change from:closest [data-live]". It listens only while the page is looked at, because
// browsers open six connections to one host at most. What it missed meanwhile, the first event makes good.
for (const place of document.querySelectorAll("[data-live]")) {
  const notice = place.querySelector("[data-lost]");
  let source = null, over = false;
  const lost = (is) => { if (notice) notice.hidden = !is; };
  const close = () => { if (source) source.close(); source = null; };
  const open = () => {
    if (source || over || document.hidden) return;
    source = new EventSource(place.dataset.live);
    for (const name of ["change", "state"])
      source.addEventListener(name, () => { lost(false); htmx.trigger(place, "live:" + name); });
    source.addEventListener("lost", () => lost(true));
    source.addEventListener("over", () => { over = true; close(); });
    source.onerror = () => lost(true);
  };
  document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
  open();
}
