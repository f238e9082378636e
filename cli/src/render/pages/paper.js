// What is lost where the page is printed: a list of sentences. WIDE says whether the sheet lies on its side, for which
// only what is to be printed so is looked at.
((wide) => {
  const faults = new Set();
  const named = (element) => {
    const text = (element.textContent || "").trim().slice(0, 40);
    return `${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""}.${element.getAttribute("class") || ""} '${text}'`;
  };
  const sheet = document.documentElement.clientWidth;
  const isShown = (element) =>
    element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0 && !element.closest("caption, .skip");
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const isDark = (css) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return alpha > 0 && 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128;
  };
  const grounds = new Set(["HTML", "BODY", "MAIN", "HEADER", "SECTION", "TABLE", "TR", "TD", "TH", "DL", "UL", "OL", "LI", "P", "PRE"]);
  document.querySelectorAll("html, body, body *").forEach((element) => {
    // What is within a drawing is where the drawing has it.
    if (element instanceof SVGElement && element.ownerSVGElement) return;
    if (!isShown(element) || (element.closest(".card.wide") !== null) !== wide) return;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (box.right > sheet + 1 || box.left < -1) {
      faults.add(`cut at the edge of the paper (${Math.round(box.left)} to ${Math.round(box.right)} of ${sheet}): ${named(element)}`);
    }
    const isCut = style.overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1
      || style.overflowY !== "visible" && element.scrollHeight > element.clientHeight + 1;
    if (isCut) {
      faults.add(`cut where it would be scrolled: ${named(element)}`);
    }
    if (grounds.has(element.tagName) && isDark(style.backgroundColor)) faults.add(`a dark ground: ${named(element)}`);
  });
  document.querySelectorAll("details").forEach((details) => {
    const content = [...details.children].find((child) => child.tagName !== "SUMMARY");
    if (content && content.getBoundingClientRect().height === 0) faults.add(`folded away: ${named(details)}`);
  });
  return [...faults].slice(0, 10);
})(WIDE)
