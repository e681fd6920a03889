"""What the status page says, in English and Portuguese: the same fields in both."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class Why:
    """A failure to somebody who did not write the program: what happened, and what helps."""

    what: str
    helps: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One language."""

    code: str
    name: str
    other_languages: str
    states: Mapping[str, str]
    explained: Mapping[str, str]
    partly: str
    partly_explained: str
    scheduled: str
    begins: str
    again: str
    again_explained: str
    completed: str
    counted: Mapping[str, tuple[str, str]]
    progress: str
    result: str
    items: str
    item: str
    all_items: str
    only_failed: str
    next_items: str
    first_items: str
    shortened: str
    yes: str
    no: str
    nothing: str
    failure: str
    said: str
    whys: Mapping[str, Why]
    expired_why: Why
    items_why: Why
    reference: str
    cancel: str
    cancel_explained: str
    cancel_yes: str
    retry: str
    retry_explained: str
    retry_yes: str
    retry_item: str
    notes: Mapping[str, str]
    may_close: str
    stays: str
    live: str
    lost: str
    refreshes: str
    stop_refreshing: str
    go_on_refreshing: str
    refused_title: str
    expired: str
    forged: str
    refused_helps: str
    gone_title: str
    gone: str
    away_title: str
    away: str
    soon: str
    amounts: Mapping[str, tuple[str, str]]
    months: str
    date: str

    def counts(self, counted: Mapping[str, int]) -> str:
        """Say how many are in which state, those that are none left out."""
        parts = [
            self.counted[name][number != 1].format(number=number)
            for name, number in counted.items()
            if number and name in self.counted
        ]
        return ", ".join(parts)

    def amount(self, seconds: float) -> str:
        """Say how long something takes, as people do."""
        for name, size in _SIZES:
            number = round(seconds / size)
            if number >= 1:
                return self.amounts[name][number != 1].format(number=number)
        return self.soon

    def day(self, at: datetime) -> str:
        """Write a date."""
        month = self.months.split()[at.month - 1]
        return self.date.format(day=at.day, month=month, year=at.year)


_SIZES: Final = (("day", 86_400), ("hour", 3600), ("minute", 60))

EN: Final = Words(
    code="en",
    name="English",
    other_languages="Language",
    states={
        "queued": "Waiting to start",
        "running": "In progress",
        "cancel_requested": "Being canceled",
        "succeeded": "Completed",
        "failed": "Not completed",
        "canceled": "Canceled",
    },
    explained={
        "queued": "Your request was received and is safe. It starts as soon as there is room.",
        "running": "The work is being done right now.",
        "cancel_requested": "The work is being stopped. It says “canceled” once that is certain.",
        "succeeded": "Everything is done.",
        "failed": "The work ended without a result.",
        "canceled": "The work was stopped before its end.",
    },
    partly="Completed in part",
    partly_explained="What worked is below, and so is what did not.",
    scheduled="Scheduled",
    begins="It starts in {amount}.",
    again="Waiting to try again",
    again_explained="The last try did not work. The next one starts in {amount}.",
    completed="{done} of {total} completed",
    counted={
        "failed": ("{number} failed", "{number} failed"),
        "canceled": ("{number} canceled", "{number} canceled"),
        "running": ("{number} in progress", "{number} in progress"),
        "queued": ("{number} waiting", "{number} waiting"),
    },
    progress="Progress",
    result="Result",
    items="Parts",
    item="Part {number}",
    all_items="Show all parts",
    only_failed="Show only what failed",
    next_items="More parts",
    first_items="Back to the first parts",
    shortened="Too long to be shown here in full.",
    yes="yes",
    no="no",
    nothing="-",
    failure="What went wrong",
    said="What the service said:",
    whys={
        "timeout": Why("It took too long and was stopped.", "It often works at another time."),
        "connection": Why(
            "A service that is needed for this could not be reached.",
            "It often works at another time.",
        ),
        "rate_limited": Why(
            "A service that is needed for this was too busy.", "It often works a little later."
        ),
        "upstream": Why(
            "A service that is needed for this had a fault of its own.",
            "It often works at another time.",
        ),
        "invalid_input": Why(
            "What was sent could not be used.", "Check what you sent; it needs a correction."
        ),
        "invalid_output": Why(
            "The answer was not usable, so it was not kept.",
            "Repeating it may help; if not, tell whoever gave you this link.",
        ),
        "refused": Why(
            "The request was declined.", "Repeating it as it is will most likely not help."
        ),
        "terminal": Why(
            "It cannot be done the way it was asked for.",
            "Repeating it as it is will most likely not help.",
        ),
        "lost": Why("The work was interrupted several times.", "Repeating it may help."),
        "canceled": Why("It was canceled.", "You can start it again."),
        "unexpected": Why(
            "Something went wrong on our side.",
            "Repeating it may help; if not, tell whoever gave you this link.",
        ),
    },
    expired_why=Why(
        "It could not start before its deadline.", "It was not begun; it can be asked for again."
    ),
    items_why=Why("Too many parts did not work.", "Below you see which, and why."),
    reference="Reference for support",
    cancel="Cancel",
    cancel_explained="What is finished stays. Nothing new is started.",
    cancel_yes="Yes, cancel it",
    retry="Repeat what failed",
    retry_explained="Only what did not work is done again; what is finished stays as it is.",
    retry_yes="Repeat it now",
    retry_item="Repeat this part",
    notes={
        "canceled": "It was canceled.",
        "cancel_requested": "Canceling: you see here when it has stopped.",
        "retried": "What failed is being done again.",
        "too_late": "That was not possible any more: see below how it stands.",
        "busy": "There is too much to do right now. Nothing was changed; try again in a minute.",
        "form": "That form was not from this page, or an old one. Nothing was changed.",
    },
    may_close="You may close this page. The work goes on, and this link shows how it stands.",
    stays="This link shows it until {date}.",
    live="This page updates itself.",
    lost="The connection is lost; the page tries to reach us again.",
    refreshes="This page loads itself again every 10 seconds.",
    stop_refreshing="Stop that",
    go_on_refreshing="Load it again every 10 seconds",
    refused_title="This link does not open anything",
    expired="It was valid for a limited time, which is over.",
    forged="It is incomplete or was changed: perhaps part of it was lost when it was copied.",
    refused_helps="Ask whoever gave it to you for a new one. The work itself is not affected.",
    gone_title="This is not kept any more",
    gone="The work that this link led to was finished long ago and has been removed.",
    away_title="We cannot look right now",
    away="Your request is safe. This page tries again by itself in a few seconds.",
    soon="less than a minute",
    amounts={
        "day": ("about a day", "about {number} days"),
        "hour": ("about an hour", "about {number} hours"),
        "minute": ("about a minute", "about {number} minutes"),
    },
    months="January February March April May June July August September October November December",
    date="{day} {month} {year}",
)

PT: Final = Words(
    code="pt-BR",
    name="Português",
    other_languages="Idioma",
    states={
        "queued": "Aguardando início",
        "running": "Em andamento",
        "cancel_requested": "Sendo cancelado",
        "succeeded": "Concluído",
        "failed": "Não concluído",
        "canceled": "Cancelado",
    },
    explained={
        "queued": "Seu pedido foi recebido e está guardado. Ele começa assim que houver vaga.",
        "running": "O trabalho está sendo feito agora.",
        "cancel_requested": "O trabalho está sendo parado. Diz “cancelado” quando isso for certo.",
        "succeeded": "Está tudo pronto.",
        "failed": "O trabalho terminou sem resultado.",
        "canceled": "O trabalho foi parado antes do fim.",
    },
    partly="Concluído em parte",
    partly_explained="Abaixo está o que deu certo, e também o que não deu.",
    scheduled="Agendado",
    begins="Começa em {amount}.",
    again="Aguardando nova tentativa",
    again_explained="A última tentativa não deu certo. A próxima começa em {amount}.",
    completed="{done} de {total} concluídos",
    counted={
        "failed": ("{number} falhou", "{number} falharam"),
        "canceled": ("{number} cancelado", "{number} cancelados"),
        "running": ("{number} em andamento", "{number} em andamento"),
        "queued": ("{number} aguardando", "{number} aguardando"),
    },
    progress="Progresso",
    result="Resultado",
    items="Partes",
    item="Parte {number}",
    all_items="Mostrar todas as partes",
    only_failed="Mostrar só o que falhou",
    next_items="Mais partes",
    first_items="Voltar às primeiras partes",
    shortened="É longo demais para ser mostrado aqui por inteiro.",
    yes="sim",
    no="não",
    nothing="-",
    failure="O que deu errado",
    said="O que o serviço disse:",
    whys={
        "timeout": Why(
            "Demorou demais e foi interrompido.", "Muitas vezes dá certo em outro momento."
        ),
        "connection": Why(
            "Um serviço necessário não pôde ser alcançado.",
            "Muitas vezes dá certo em outro momento.",
        ),
        "rate_limited": Why(
            "Um serviço necessário estava ocupado demais.",
            "Muitas vezes dá certo um pouco mais tarde.",
        ),
        "upstream": Why(
            "Um serviço necessário teve uma falha própria.",
            "Muitas vezes dá certo em outro momento.",
        ),
        "invalid_input": Why(
            "O que foi enviado não pôde ser usado.",
            "Confira o que você enviou; é preciso corrigir.",
        ),
        "invalid_output": Why(
            "A resposta não era utilizável e não foi guardada.",
            "Repetir pode ajudar; se não, avise quem lhe deu este link.",
        ),
        "refused": Why("O pedido foi recusado.", "Repetir do mesmo jeito não deve ajudar."),
        "terminal": Why(
            "Não pode ser feito do jeito que foi pedido.",
            "Repetir do mesmo jeito não deve ajudar.",
        ),
        "lost": Why("O trabalho foi interrompido várias vezes.", "Repetir pode ajudar."),
        "canceled": Why("Foi cancelado.", "Você pode começar de novo."),
        "unexpected": Why(
            "Algo deu errado do nosso lado.",
            "Repetir pode ajudar; se não, avise quem lhe deu este link.",
        ),
    },
    expired_why=Why(
        "Não pôde começar antes do prazo.", "Não chegou a começar; pode ser pedido de novo."
    ),
    items_why=Why("Partes demais não deram certo.", "Abaixo você vê quais, e por quê."),
    reference="Referência para o suporte",
    cancel="Cancelar",
    cancel_explained="O que está pronto fica. Nada de novo é começado.",
    cancel_yes="Sim, cancelar",
    retry="Repetir o que falhou",
    retry_explained="Só o que não deu certo é refeito; o que está pronto fica como está.",
    retry_yes="Repetir agora",
    retry_item="Repetir esta parte",
    notes={
        "canceled": "Foi cancelado.",
        "cancel_requested": "Cancelando: aqui você vê quando parou.",
        "retried": "O que falhou está sendo refeito.",
        "too_late": "Isso já não era possível: veja abaixo como está.",
        "busy": "Há trabalho demais agora. Nada foi alterado; tente de novo em um minuto.",
        "form": "Esse formulário não era desta página, ou era antigo. Nada foi alterado.",
    },
    may_close="Você pode fechar esta página. O trabalho continua, e este link mostra como está.",
    stays="Este link mostra isso até {date}.",
    live="Esta página se atualiza sozinha.",
    lost="A conexão caiu; a página está tentando de novo.",
    refreshes="Esta página se recarrega a cada 10 segundos.",
    stop_refreshing="Parar com isso",
    go_on_refreshing="Recarregar a cada 10 segundos",
    refused_title="Este link não abre nada",
    expired="Ele valia por um tempo limitado, que já passou.",
    forged="Está incompleto ou foi alterado: talvez uma parte tenha se perdido ao ser copiado.",
    refused_helps="Peça um novo a quem lhe deu este link. Nada aconteceu com o trabalho em si.",
    gone_title="Isto não é mais guardado",
    gone="O trabalho deste link terminou há muito tempo e foi removido.",
    away_title="Não conseguimos ver agora",
    away="Seu pedido está guardado. Esta página tenta de novo sozinha em alguns segundos.",
    soon="menos de um minuto",
    amounts={
        "day": ("cerca de um dia", "cerca de {number} dias"),
        "hour": ("cerca de uma hora", "cerca de {number} horas"),
        "minute": ("cerca de um minuto", "cerca de {number} minutos"),
    },
    months="janeiro fevereiro março abril maio junho "
    "julho agosto setembro outubro novembro dezembro",
    date="{day} de {month} de {year}",
)

LANGUAGES: Final[Mapping[str, Words]] = {"en": EN, "pt": PT}
