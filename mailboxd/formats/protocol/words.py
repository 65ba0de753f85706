"""The words of people, models and other tools for what mailboxd calls by one name: one closed table for all texts.

Answers, plans, dropped files and task.md read keys and values through it. What is not in a table is not guessed: a key
that may restrain the work (a limit, gate, order, approval, reviewer, deadline or executor) is never dropped, so a
reader that does not know it stops (`restrains`), with what was probably meant (`meant`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from itertools import pairwise

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GAPS = re.compile(r"[\s_-]+")
_LONGEST = 64
"""Characters of a key that are looked at; no name here is half as long."""


def spelled(key: str) -> str:
    """`key` as mailboxd spells keys: lower case, words joined by `_`. `Depends-On`, `dependsOn` -> `depends_on`."""
    words = _CAMEL.sub("_", unicodedata.normalize("NFKC", key[: 2 * _LONGEST].replace("\u2019", "'")).strip())
    return _GAPS.sub("_", words).strip("_").casefold()


def _table(meanings: Mapping[str, str]) -> dict[str, str]:
    return {word: name for name, words in meanings.items() for word in (name, *words.split())}


KEYS = _table(
    {
        "agent": "agents assignee assignees assigned_to assigned_agent owner owners who executor responsible"
        " delegate_to",
        "depends_on": "dependencies depends dependson blocked_by after requires prerequisites prerequisite prereqs"
        " waits_for wait_for waiting_for",
        "blocks": "before",
        "deadline": "due due_date due_by due_at duedate finish_by",
        "timeout": "time_limit timelimit timeout_s timeout_sec timeout_secs timeout_seconds timebox time_box time_cap"
        " max_time max_duration max_runtime",
        "budget_usd": "max_usd max_cost_usd cost_limit_usd",
        "budget_tokens": "token_budget token_limit max_tokens",
        "budget": "max_cost cost_limit cost_cap max_spend spend_limit spending_limit spending_cap max_budget"
        " budget_limit",
        "max_attempts": "attempts_at_most max_tries",
        "priority": "prio importance urgency",
        "status": "state zustand stav estado stato état statut durum статус состояние стан 状态 状態 상태 स्थिति الحالة",
        "labels": "tags label tag",
        "id": "key",
        "title": "name task summary headline subject",
        "description": "details detail desc",
        "instructions": "instruction prompt steps step todo how",
        "goal": "objective",
        "expected_output": "deliverable deliverables",
        "acceptance_criteria": "criteria acceptance definition_of_done done_when dod acceptance_criterion",
        "subtasks": "sub_tasks tasks children",
        "planned_actions": "actions side_effects",
        "reviewers": "reviewer",
        "verdict": "review_verdict",
        "findings": "issues problems comments remarks finding",
        "severity": "level",
        "results": "result output outcome",
        "partial_results": "partial_result partial",
        "error": "errors reason",
        "questions": "question",
        "answer": "vote choice",
        "answers": "allowed_answers choices",
    }
)
"""Every spelling of a key, as `spelled` gives it, to its name. A reader takes those names that its place has."""

STATUS = _table({"done": "success succeeded successful completed complete ok finished", "failed": "failure error fail"})
"""The status of a reply."""
OPEN = frozenset(
    {
        "",
        "todo",
        "to_do",
        "open",
        "pending",
        "new",
        "none",
        "backlog",
        "not_started",
        "planned",
        "offen",
        "neu",
        "à_faire",
    }
    | {"ouvert", "abierto", "pendiente", "por_hacer", "aberto", "pendente", "a_fazer", "aperto", "da_fare", "te_doen"}
    | {"otwarte", "do_zrobienia", "otevřeno", "новая", "новый", "открыто", "нове", "відкрито", "açık", "待办", "未着手"}
)
"""A status that every task has that nobody has begun."""
CLOSED = frozenset(
    {*STATUS, "closed", "resolved", "cancelled", "canceled", "archived", "wontfix", "won't_fix", "[x]", "x"}
    | {"won_t_do", "won't_do", "wont_do", "not_planned", "abandoned", "declined", "obsolete", "duplicate"}
    | {"erledigt", "abgeschlossen", "fertig", "abgebrochen", "storniert", "terminé", "terminée", "annulé", "hecho"}
    | {"terminado", "completado", "cancelado", "concluído", "feito", "fatto", "completato", "annullato", "klaar"}
    | {"zrobione", "zakończone", "hotovo", "dokončeno", "выполнено", "завершено", "готово", "сделано", "виконано"}
    | {"зроблено", "bitti", "tamamlandı", "完成", "已完成", "完了", "済", "완료", "पूर्ण", "مكتمل"}
)
"""A status of work that is not to be done (any more)."""
VERDICTS = _table(
    {
        "approved": "approve approves accepted accept lgtm pass passed ok looks_good looks_good_to_me",
        "changes_requested": "request_changes requests_changes changes_required needs_work needs_changes revise"
        " change_requested rework not_approved",
        "blocked": "block blocks",
    }
)
SEVERITIES = _table(
    {
        "critical": "blocker blocking severe fatal",
        "major": "high important",
        "minor": "nit nitpick low medium trivial suggestion info style",
    }
)
PRIORITIES = {
    "low": -10,
    "lowest": -20,
    "normal": 0,
    "medium": 0,
    "high": 10,
    "urgent": 20,
    "highest": 20,
    "critical": 20,
}
"""Words for a priority; only their order has a meaning."""
STOPPED = frozenset(
    {"blocked", "on_hold", "hold", "held", "paused", "waiting", "deferred", "postponed", "someday", "draft", "idea"}
    | {"proposed", "proposal", "needs_approval", "awaiting_approval", "needs_review", "suspended", "do_not_start"}
)
"""A status of work that is not to begin yet."""
UNDER_WAY = frozenset(
    {"in_progress", "doing", "started", "active", "wip", "working", "ongoing", "in_review", "review", "in_bearbeitung"}
    | {"in_arbeit", "en_cours", "en_curso", "em_andamento", "in_corso", "w_toku", "probíhá", "в_работе", "в_процессе"}
    | {"в_роботі", "виконується", "devam_ediyor", "进行中", "進行中", "作業中", "진행_중"}
)
"""A status of work that somebody has begun."""
SENDERS = frozenset({"sender", "from_agent", "sent_by", "from_id"})
"""Keys of other tools for the header `from`."""
PERSONS = frozenset({"owner", "owners", "responsible"})
"""Spellings of `agent` that are as often used for a person who does not do the work."""
REPEATS = frozenset(
    {"repeat", "repeats", "repeating", "recur", "recurs", "recurrence", "recurring", "every", "cron", "rrule"}
    | {"schedule", "frequency", "interval"}
)
"""Keys of work that is to be done again and again."""
STARTS = frozenset(
    {"start", "starts", "start_date", "start_at", "start_on", "starts_at", "starts_on", "begin", "begins", "begin_on"}
    | {"scheduled", "scheduled_for", "scheduled_at", "scheduled_date", "not_before", "defer_until", "wait_until"}
    | {"hide_until", "wait", "beginn", "startdatum", "début", "inicio", "inizio", "início", "начало", "开始日期"}
)
"""Keys of work that is to begin on a certain day."""
BOOKKEEPING = frozenset(
    {"created", "created_at", "created_on", "created_date", "updated", "updated_at", "updated_date", "modified", "date"}
    | {"number", "url", "link", "links", "source", "author", "authors", "created_by", "reporter", "alias", "aliases"}
    | {
        "cssclass",
        "cssclasses",
        "id",
        "uid",
        "uuid",
        "guid",
        "thread",
        "thread_id",
        "ack_required",
        "version",
        "schema",
    }
    | {
        "issue_type",
        "kind",
        "lang",
        "language",
        "slug",
        "layout",
        "permalink",
        "publish",
        "published",
        "project",
        "area",
    }
    | {"category", "categories", "topic", "parent", "epic", "sprint", "milestone", "refs", "references", "related"}
    | {"identifier", "team", "cycle", "comments", "comment_count", "board", "column", "list", "space", "folder", "repo"}
    | {"repository", "database", "state_reason", "reactions", "closed_at", "locked", "urgency", "entry", "notes"}
    | {"location", "cover", "icon", "type", "attachments", "bytes", "rendered", "reported_by", "requested_by"}
)
"""Keys by which other tools keep their files in order; they say nothing about how the work is to be done."""
IDLE = frozenset({"estimate", "estimated_time", "time_estimate", "effort", "points", "story_points", "labels", "type"})
"""Keys of other tools, by their name in KEYS, that never restrain the work and have no effect here."""

CRITERIA = frozenset(
    {"acceptance_criteria", "acceptance_criterion", "criteria", "acceptance", "definition_of_done", "dod", "done_when"}
    | {"success_criteria", "acceptance_tests", "abnahmekriterien", "akzeptanzkriterien", "验收标准", "驗收標準"}
    | {"critères_d'acceptation", "criterios_de_aceptación", "criteri_di_accettazione", "critérios_de_aceitação"}
    | {"acceptatiecriteria", "kryteria_akceptacji", "критерии_приёмки", "критерии_приемки", "критерии_готовности"}
    | {"受け入れ条件", "受け入れ基準", "完了条件", "完成标准", "fertig_wenn"}
)
"""Headings of acceptance criteria, as `spelled` gives them."""
SECTIONS = {
    "ziel": "Goal",
    "kontext": "Context",
    "hintergrund": "Context",
    "anweisungen": "Instructions",
    "erwartetes_ergebnis": "Expected Output",
    "abnahmekriterien": "Acceptance Criteria",
    "akzeptanzkriterien": "Acceptance Criteria",
    "目标": "Goal",
    "背景": "Context",
    "说明": "Instructions",
    "验收标准": "Acceptance Criteria",
    **dict.fromkeys(("objectif", "objetivo", "obiettivo", "doel", "cel", "цель", "目的", "目標"), "Goal"),
    **dict.fromkeys(("contexte", "contexto", "contesto", "kontekst", "контекст"), "Context"),
    **dict.fromkeys(
        ("instrucciones", "instruções", "istruzioni", "instructies", "instrukcje", "инструкции"), "Instructions"
    ),
    **dict.fromkeys(("résultat_attendu", "resultado_esperado", "risultato_atteso", "期待結果"), "Expected Output"),
    **dict.fromkeys(("ожидаемый_результат", "预期结果"), "Expected Output"),
}
SECTIONS |= dict.fromkeys(
    [name for name in CRITERIA if not name.isascii() or name in ("acceptatiecriteria", "criteri_di_accettazione")],
    "Acceptance Criteria",
)
"""Headings of a spec's sections in other languages."""
FOREIGN = _table(
    {
        "deadline": "frist fällig fällig_am fällig_bis fälligkeit fälligkeitsdatum termin abgabe abgabetermin stichtag"
        " échéance date_d'échéance date_limite date_butoir délai plazo fecha_límite fecha_de_entrega vencimiento"
        " fecha_de_vencimiento prazo data_limite data_de_entrega data_de_vencimento scadenza data_di_scadenza termijn"
        " uiterste_datum vervaldatum termin_wykonania ostateczny_termin срок крайний_срок срок_исполнения"
        " дедлайн lhůta termín_dokončení uzávěrka термін крайній_термін son_tarih bitiş_tarihi teslim_tarihi"
        " 마감 마감일 기한 अंतिम_तिथि समय_सीमा الموعد_النهائي"
        " تاريخ_الاستحقاق 截止 截止日期 截止日 截止时间 期限 最后期限 到期日 締切 締め切り 締切日 期日 納期",
        "budget_usd": "kostenlimit kostengrenze kostenrahmen höchstkosten maximale_kosten max_kosten plafond"
        " coût_max coût_maximum coût_maximal dépense_max presupuesto coste_máximo costo_máximo gasto_máximo orçamento"
        " custo_máximo gasto_máximo costo_massimo spesa_massima begroting kostenlimiet budżet maksymalny_koszt"
        " limit_kosztów бюджет максимальная_стоимость лимит_расходов 预算 预算上限 费用上限 予算 予算上限 費用上限"
        " rozpočet ліміт_витрат bütçe 예산 बजट الميزانية",
        "timeout": "zeitlimit höchstdauer maximale_dauer durée_max durée_maximale tiempo_límite duración_máxima"
        " tempo_limite duração_máxima tempo_massimo durata_massima tijdslimiet maximale_duur limit_czasu"
        " maksymalny_czas лимит_времени таймаут 超时 时限 时间限制 タイムアウト 制限時間 時間制限",
        "limit": "grenze obergrenze grenzwert limite límite limites límites limiet limity лимит ограничение ограничения"
        " 限制 上限 限度 制限",
        "approval": "freigabe genehmigung zustimmung bestätigung approbation autorisation aprobación autorización"
        " visto_bueno aprovação autorização approvazione autorizzazione goedkeuring toestemming zatwierdzenie"
        " akceptacja zgoda согласование одобрение утверждение разрешение подтверждение 审批 批准 核准 承認 決裁"
        " schválení souhlas погодження схвалення затвердження дозвіл onay izin 승인 허가 स्वीकृति अनुमोदन موافقة اعتماد",
        "reviewers": "prüfer prüferin gutachter relecteur relecteurs relectrice vérificateur revisor revisores revisore"
        " revisori beoordelaar beoordelaars recenzent recenzenci weryfikator рецензент рецензенты проверяющий ревьюер"
        " 审核 审核人 审阅人 审查人 评审 评审人 复核人 レビュー レビュアー レビュー担当 査読者"
        " recenzenti kontrolor рецензенти перевіряючий gözden_geçiren 검토자 समीक्षक المراجع",
        "depends_on": "abhängig_von hängt_ab_von abhängigkeit abhängigkeiten voraussetzung voraussetzungen wartet_auf"
        " blockiert_von blockiert_durch dépend_de dépendances bloqué_par prérequis en_attente_de depende_de"
        " dependencias bloqueado_por después_de dependências depois_de dipende_da dipendenze bloccato_da prerequisiti"
        " afhankelijk_van afhankelijkheden geblokkeerd_door wacht_op zależy_od zależności zablokowane_przez czeka_na"
        " зависит_от зависимости заблокировано ожидает 依赖 依赖于 前置任务 前置条件 先决条件 取决于 依存 依存先"
        " 前提条件 先行タスク závisí_na závislosti čeká_na blokováno залежить_від залежності чекає_на заблоковано"
        " bağımlı bağımlılıklar 선행_작업 의존",
        "agent": "zuständig zuständige bearbeiter bearbeiterin verantwortlich verantwortlicher beauftragter"
        " zugewiesen zugewiesen_an ausführender responsable assigné assigné_à attribué_à exécutant asignado asignado_a"
        " encargado ejecutor responsável atribuído_a encarregado responsabile assegnato_a assegnatario incaricato"
        " esecutore verantwoordelijke toegewezen_aan uitvoerder odpowiedzialny przypisany_do wykonawca исполнитель"
        " ответственный назначен назначено агент agente 代理 智能体 エージェント 에이전트 담당자 负责人 执行者 "
        "执行人 指派给 分配给 责任人 经办人 担当 担当者 実行者 責任者 odpovědný"
        " přiřazeno řešitel vykonavatel виконавець відповідальний призначено sorumlu atanan जिम्मेदार المسؤول",
        "repeat": "wiederholen wiederholung wiederholt turnus répéter répétition récurrence repetir repetición"
        " recurrencia ripetere ripetizione repetição herhalen herhaling powtarzaj powtarzanie opakovat opakování"
        " повторять повтор повторювати tekrar tekrarla 重复 繰り返し 반복 दोहराएँ تكرار",
    }
)
"""What restrains or repeats in other languages, as `spelled` gives it, to our name; `approval` and `limit` are no
headers. They are not read, for their values may be of that language, too: what to write instead is said."""


def _folded(word: str) -> str:
    """A word without accents, for those who have no key for them."""
    plain = unicodedata.normalize("NFKD", word)
    return unicodedata.normalize("NFC", "".join(one for one in plain if not unicodedata.combining(one))).replace(
        "ı", "i"
    )


_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"})
_FOREIGN = {
    spelling: name
    for word, name in FOREIGN.items()
    if word != name
    for spelling in (_folded(word), word.translate(_UMLAUTS))
}
_SHORTEST_FOREIGN = 5
"""Letters of such a word that may be one of several in a key."""
_WITHOUT_SPACES = tuple(word for word in _FOREIGN if len(word) >= 2 and word[0] >= "\u3000")


def foreign(key: str) -> str:
    """Our name for a key that is a word of another language for what restrains; empty if it is none."""
    return _FOREIGN.get(_folded(spelled(key)), "")


def _with_foreign(key: str) -> str:
    """Our name for a key that is such a word or has one in it: `späteste Frist`, `需要审批`; else empty."""
    name = _folded(spelled(key))
    parts = (part for part in name.split("_") if len(part) >= _SHORTEST_FOREIGN and part in _FOREIGN)
    within = () if name.isascii() else (word for word in _WITHOUT_SPACES if word in name)
    return _FOREIGN.get(name) or next((_FOREIGN[word] for word in (*parts, *within)), "")


_RESTRAINS = frozenset(
    {"agent", "depends_on", "blocks", "deadline", "timeout", "budget_usd", "budget_tokens", "max_attempts"}
    | {"planned_actions", "reviewers", "gates", "checks", "claims", "when", "needs", "until", "rounds", "join"}
    | {"idempotent", "runtime", "harness", "model", "answers"}
)
"""Names of keys that limit, order, gate or assign the work."""
_WORDS = frozenset(
    {"approve", "approval", "approvals", "approver", "approvers", "gate", "gates", "review", "reviews", "reviewer"}
    | {"reviewers", "limit", "limits", "budget", "budgets", "deadline", "due", "timeout", "depend", "depends"}
    | {"dependency", "dependencies", "blocked", "blocks", "block", "blocker", "blockers", "after", "before"}
    | {"assignee", "executor", "confirm", "confirmation", "permission", "signoff", "max", "maximum"}
    | {"authorization", "authorisation", "authorize", "authorise", "dryrun", "readonly"}
    | {"forbid", "forbids", "forbidden", "prohibited", "disallow", "disallowed", "deny", "denied"}
    | {"cap", "caps", "hold", "sandbox", "defer", "donot", "askfirst", "allowed", "wait", "waits", "waiting"}
    | {"humanin", "requireshuman", "needshuman", "hitl", "autonomy", "supervised", "oversight", "consent", "veto"}
)
"""A key with one of these words in it restrains, whatever the others are: `requires_approval`, `max_cost`."""
_SHORTEST_NEAR = 6
"""Letters of such a word that may be misspelt as a part of a key; shorter ones have too many neighbours: gate, date."""
_NO_MISSPELLINGS = frozenset({"reviewed", "approved", "assigned", "limited", "confirmed", "content", "contents"})
"""What was done, near to a word that restrains what is to be done, and other words near to one."""
_RESTRAINING_KEYS = frozenset({*_RESTRAINS, *(word for word, name in KEYS.items() if name in _RESTRAINS)})


def restrains(key: str) -> bool:
    """Whether a key, in any spelling, is or may be meant as one that limits, orders, gates or assigns the work."""
    name = spelled(skeleton(key))
    parts = name.split("_")
    if KEYS.get(name, name) in _RESTRAINS or not _WORDS.isdisjoint([*parts, *map("".join, pairwise(parts))]):
        return True
    return bool(_with_foreign(key) or meant(key, _RESTRAINING_KEYS)) or any(map(_near_word, parts))


def _near_word(word: str) -> str:
    """The word that restrains of which one in a key is a misspelling; empty for none. The first letter is right."""
    if len(word) < _SHORTEST_NEAR - 1 or word in _NO_MISSPELLINGS:
        return ""
    return meant(word, (one for one in _WORDS if len(one) >= _SHORTEST_NEAR and one[0] == word[0]))


_LONGEST_SHOWN = 80
_EXAMPLES = {"deadline": "2026-12-03", "repeat": "every monday 8:00", "timeout": "30m"}
"""Values in English of headers whose values are not any text."""
_WORD = re.compile(r"[^\W\d_]{3}")
_AMOUNT = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,6})?")


def instead(key: str, value: object = "") -> str:
    """A sentence that says what to write instead of a key that restrains and is none of ours, on one line with its
    `value`; empty if its words do not tell.
    """
    parts = spelled(skeleton(key)).split("_")
    joined = map("".join, pairwise(parts))
    said = [_MEANINGS.get(word) or _MEANINGS.get(_near_word(word), "") for word in (*parts, *joined)]
    names = dict.fromkeys(filter(None, [_with_foreign(key), *said]))
    text = value if isinstance(value, str) and len(value) <= _LONGEST_SHOWN and "`" not in value else ""
    if "approval" in names:
        return "What a person has to approve goes under `## Planned Actions`, in a plan under `planned_actions`."
    if "cost" in names or "budget_usd" in names:
        amount = _AMOUNT.search(text)
        return f"Write `budget_usd: {amount[0] if amount else '5'}`, an amount in US dollars."
    name = next((one for one in names if one != "limit"), "limit" if names else "")
    if name == "limit":
        return "Write what it limits: `budget_usd`, `budget_tokens`, `timeout` or `max_attempts`."
    if name in _EXAMPLES and _WORD.search(text):  # its words may be of the language of its key
        return f"Write `{name}: {_EXAMPLES[name]}`, with your own time."
    return f"Write `{name}: {text or '...'}`." if name else ""


_MEANINGS = _table(
    {
        "approval": "approve approvals approver approvers confirm confirmation permission signoff authorization"
        " authorisation authorize authorise askfirst humanin requireshuman needshuman hitl autonomy supervised"
        " oversight consent veto",
        "cost": "costs spend spending expenses price money budget budgets usd dollars",
        "deadline": "due",
        "depends_on": "depend depends dependency dependencies blocked blocker blockers after before",
        "reviewers": "reviewer review reviews",
        "agent": "assignee executor",
        "gates": "gate",
        "timeout": "time",
        "limit": "limits cap caps max maximum",
    }
)
"""What a word in a key that restrains says about it. Any other one tells more than `limit` does."""


def meant(key: str, known: Iterable[str]) -> str:
    """The one of `known` that `key` probably is a misspelling of; empty if it is none, or none of them itself.

    One letter wrong, missing, too many or exchanged with its neighbour; two in names of eight letters and more; or
    letters of another script that look the same.
    """
    name, plain = spelled(key), spelled(skeleton(key))
    names = tuple(known)
    if name in names:
        return ""
    if plain in names:
        return plain
    letters = set(plain)
    near = [
        (_distance(plain, word), word)
        for word in names
        if len(word) >= 4 and abs(len(word) - len(plain)) <= 2 and len(set(word) - letters) <= 2
    ]
    found = [(far, word) for far, word in near if far <= (2 if min(len(word), len(plain)) >= 8 else 1)]
    return min(found)[1] if found and len(plain) >= 4 else ""


_ALIKE = str.maketrans(
    "аеорсухіјѕԁԛԝӏьһВЕКМНОРСТХАІЈЅ" + "αεοριυνκτχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "ıℓ01",
    "aeopcyxijsdqwlbhBEKMHOPCTXAIJS" + "aeopiuvktxABEZHIKMNOPTYX" + "ilol",
)
"""Letters of Cyrillic and Greek, and digits, that look like Latin ones."""


def skeleton(word: str) -> str:
    """`word` with the letters of other scripts that look Latin replaced by those; equal for words that look alike."""
    normal = unicodedata.normalize("NFKC", word[: 2 * _LONGEST])
    return "".join(
        letter.translate(_ALIKE) if not letter.isdigit() or _in_a_word(normal) else letter for letter in normal
    )


def _in_a_word(text: str) -> bool:
    return any(letter.isalpha() for letter in text)


def foreign_letter(word: str) -> tuple[int, str] | None:
    """The first letter of a Latin word that is of another script: its position, from 1, and its Unicode name."""
    if not any("a" <= letter.casefold() <= "z" for letter in word):
        return None
    odd = ((at, letter) for at, letter in enumerate(word, 1) if letter.isalpha() and ord(letter) > 0x24F)
    return next(((at, unicodedata.name(letter, "an unnamed letter")) for at, letter in odd), None)


def _distance(one: str, other: str) -> int:
    """The optimal string alignment distance of two words."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, second in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != second))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == second:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]
