// What a reader would stumble over in the page as it is shown now: a list of sentences.
(() => {
  const faults = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const named = (element) => {
    const text = (element.textContent || "").trim().slice(0, 40);
    return `${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""}.${element.getAttribute("class") || ""} '${text}'`;
  };
  const isShown = (element) =>
    element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  const isClipped = (element) => element.closest("caption, .skip") !== null;

  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = all("body *").filter(
      (element) => element.getBoundingClientRect().right > root.clientWidth + 1 && !element.closest(".scroll, .graph"));
    faults.push(`${root.scrollWidth} wide in a window of ${root.clientWidth}: ${wide.slice(0, 3).map(named).join(", ")}`);
  }

  const ids = all("[id]").map((element) => element.id);
  ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => faults.push(`id twice: ${id}`));
  all("a[href^='#']").forEach((link) => {
    if (!document.getElementById(link.getAttribute("href").slice(1))) faults.push(`leads nowhere: ${named(link)}`);
  });
  all("[aria-labelledby]").forEach((element) => {
    if (!document.getElementById(element.getAttribute("aria-labelledby"))) faults.push(`named by nothing: ${named(element)}`);
  });

  if (!root.lang || !document.title) faults.push("the page has no language or title");
  const headings = all("h1, h2, h3, h4, h5, h6");
  if (headings.filter((heading) => heading.tagName === "H1").length !== 1) faults.push("not one h1");
  headings.reduce((before, heading) => {
    const level = Number(heading.tagName[1]);
    if (level > before + 1) faults.push(`a level is left out before ${named(heading)}`);
    if (!heading.textContent.trim()) faults.push("a heading is empty");
    return level;
  }, 0);

  all("table").forEach((table) => {
    if (!table.caption || !table.caption.textContent.trim()) faults.push(`no caption: ${named(table)}`);
    if (!table.closest(".scroll")) faults.push(`cannot scroll: ${named(table)}`);
  });
  all("th").forEach((head) => {
    if (!head.scope) faults.push(`no scope: ${named(head)}`);
  });
  all("svg[role=img]").forEach((svg) => {
    if (!svg.getAttribute("aria-label") && !svg.querySelector(":scope > title")) faults.push(`no name: ${named(svg)}`);
  });
  all("body *").filter(isShown).forEach((element) => {
    const scrolls = /auto|scroll/.test(getComputedStyle(element).overflowX) && element.scrollWidth > element.clientWidth + 1;
    if (scrolls && element.tabIndex < 0) faults.push(`cannot be scrolled by keyboard: ${named(element)}`);
  });

  // Colours: what a text has behind it, blended as it is drawn.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const colour = (css) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) =>
    [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3])).concat(1);
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    const layers = [];
    if (element instanceof SVGElement) {
      const box = element.getBoundingClientRect();
      const at = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      if (!at.includes(element) && !at.some((other) => element.ownerSVGElement === (other.ownerSVGElement || other))) return null;
      at.filter((other) => other.tagName === "rect").forEach((rect) => {
        const fill = getComputedStyle(rect).fill;
        if (!fill.startsWith("url") && fill !== "none") layers.push(colour(fill));
      });
    }
    for (let above = element; above instanceof Element; above = above.parentElement) {
      layers.push(colour(getComputedStyle(above).backgroundColor));
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !isShown(element) || isClipped(element)) continue;
    if (["TITLE", "STYLE", "title", "style"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const svg = element instanceof SVGElement;
    const scale = svg && element.getScreenCTM ? Math.hypot(element.getScreenCTM().a, element.getScreenCTM().b) : 1;
    const size = parseFloat(style.fontSize) * scale;
    if (size < 9) told.add(`letters of ${size.toFixed(1)} px: ${named(element)}`);
    const ground = behind(element);
    if (!ground) continue;
    const ratio = contrast(over(colour(svg ? style.fill : style.color), ground), ground);
    if (ratio < 4.5) told.add(`contrast ${ratio.toFixed(2)}: ${named(element)}`);
  }
  return [...faults, ...told].slice(0, 20);
})()
