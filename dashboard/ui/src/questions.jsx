import { t } from "./texts.js";
import { clock, marks } from "./format.js";

// Questions answers the ten questions: each in a line, and with one click in full.
export function Questions({ answers, links }) {
  return (
    <section class="questions" aria-label={t.questions}>
      <h2>{t.questions} <small>{t.questionsHint}</small></h2>
      <div class="grid">
        {answers.map((a, i) => (
          <details class={"question level" + a.level} key={a.id} data-question={a.id} name="question">
            <summary>
              <span class="ask"><kbd aria-hidden="true">{(i + 1) % 10}</kbd> {a.question}</span>
              <span class="short">{a.level > 1 && <span class="mark" aria-hidden="true">{marks[a.level]} </span>}{a.short}</span>
            </summary>
            {a.items?.length ? (
              <ul>
                {a.items.map((it) => (
                  <li class={"level" + it.level}>
                    {it.at > 0 && <time>{clock(it.at)}</time>}
                    {links && it.dependency && <a href={"#/d/" + encodeURIComponent(it.dependency)}>{it.dependency}</a>} {it.text}
                  </li>
                ))}
              </ul>
            ) : <p class="hint">{t.nothingMore}</p>}
          </details>
        ))}
      </div>
    </section>
  );
}
