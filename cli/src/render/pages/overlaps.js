// Texts that overlap in the page as it is shown now: a list of sentences. The box of a text is that of each of its lines, without
// the leading.
(() => {
  const boxes = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || element.closest("caption, .skip, style, title, script")) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    // What scrolls cuts off what does not fit.
    let cut = null;
    for (let above = element; above && above !== document.body; above = above.parentElement) {
      const style = getComputedStyle(above);
      if (style.overflowX !== "visible" && !(above instanceof SVGElement)) {
        const box = above.getBoundingClientRect();
        cut = cut
          ? { left: Math.max(cut.left, box.left), right: Math.min(cut.right, box.right),
              top: Math.max(cut.top, box.top), bottom: Math.min(cut.bottom, box.bottom) }
          : box;
      }
    }
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const line of range.getClientRects()) {
      // Letters without their leading; descenders may reach into the line below.
      const leading = line.height * 0.2;
      const box = { left: line.left, right: line.right, top: line.top + leading, bottom: line.bottom - leading };
      if (cut) {
        box.left = Math.max(box.left, cut.left);
        box.right = Math.min(box.right, cut.right);
        box.top = Math.max(box.top, cut.top);
        box.bottom = Math.min(box.bottom, cut.bottom);
      }
      if (box.right - box.left < 1 || box.bottom - box.top < 1) continue;
      const label = element.closest(".ticks, .curves") !== null;
      boxes.push({ ...box, node, label, text: node.textContent.trim().slice(0, 40) });
    }
  }
  boxes.sort((one, other) => one.top - other.top);
  const told = new Set();
  boxes.forEach((one, index) => {
    for (let next = index + 1; next < boxes.length && boxes[next].top < one.bottom; next += 1) {
      const other = boxes[next];
      if (other.node === one.node) continue;
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      // Figures along an axis are to be told apart, too.
      const most = one.label && other.label ? -2 : 1;
      if (across > most && down > 1) told.add(`'${one.text}' and '${other.text}' overlap, or nearly, by ${across.toFixed(0)} px`);
    }
  });
  return [...told].slice(0, 20);
})()
