"""How an author says in other languages than English that work is refused, promised, done, or missing something.

One table for each language. Each value is a pattern for a sentence in lower case, at its beginning unless the name of
the field says `anywhere`; they are about the author and the work, not about what the text tells. English, which most
answers are in, has patterns of its own in `protocol.evasions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phrases:
    """What one language has for the parts of an answer that is not the work. Sources of patterns; none is empty."""

    sorry: str
    """An apology."""
    unable: str
    """The author cannot, may not or will not, or did not manage to."""
    missing: str
    """Anywhere: what is needed is not there, or cannot be read."""
    failed: str
    """The work, or a step of it, failed."""
    promises: str
    """The author is about to work, or wants patience."""
    received: str
    """The whole sentence acknowledges the task."""
    done: str
    """The author, or the passive, says that the work is done."""
    asks: str
    """Anywhere: the author needs to be told or sent something."""
    offers: str
    """A wish or an offer at the end of an answer."""
    ignorant: str
    """Anywhere: the author does not know."""
    condition: str
    """What takes an approval or a vote back, behind it."""


_UP_TO = r"(?:[^.!?]|\.(?=\w)){0,60}"
"""The words between a file and what is wrong with it, its name among them."""


def _unless(others: str, phrase: str) -> str:
    """The phrase, unless one of the others stands in its sentence, which is asked last: it takes the longest."""
    return f"(?={phrase})(?!.*(?:{others}))"


GERMAN = Phrases(
    sorry=r"(?:es )?tut mir (?:sehr )?leid|entschuldig|verzeih|ich bedaure|bedaure",
    unable=_unless(
        r"\b(?:glauben|fassen|leiden|erwarten|schlafen|vergessen|beschweren)\b|\bkeine? [^.]{0,40}\b(?:finden|"
        r"feststellen|erkennen|entdecken|sehen)\b",
        r"(?:(?:(?:es )?tut mir (?:sehr )?leid|leider|entschuldigung|aber|daher|deshalb|also|und)[, ]+)*(?:(?:ich|"
        r"wir) (?:kann|könnte|konnte|können|konnten|darf|durfte|dürfen|werde|möchte|will)\b[^.]{0,80}\b(?:nicht|"
        r"kein\w*)\b|(?:ich|wir) (?:habe|hatte|haben)\b[^.]{0,60}\b(?:kein\w* (?:\w+ )?(?:zugriff|zugang|"
        r"berechtigung|möglichkeit|rechte|informationen|werkzeug\w*|datei\w*|daten)|nicht (?:\w+ )?(?:öffnen|lesen|"
        r"finden|gefunden|geschafft|machen|fertig\w*|erhalten|bekommen))\b|(?:ich|wir) (?:bin|sind|war) (?:leider |"
        r"dazu |dafür |hier )*nicht (?:in der lage|befugt|berechtigt|imstande|dafür|autorisiert)|(?:ich|wir) "
        r"(?:lehne|verweigere|weigere|muss (?:\w+ ){0,3}ablehnen)\b|(?:das|dies\w*|die|den|der|dabei|damit|dafür|"
        r"dazu|daran|darauf|hierbei|hier|so etwas|leider)(?: [\wäöüß-]+){0,3} (?:kann|konnte|darf|werde|könnte|"
        r"können|konnten|dürfen|möchte|will|konnt) (?:ich|wir)\b[^.]{0,80}\b(?:nicht|kein\w*)\b|(?:das|dies\w*|"
        r"es)(?: [\wäöüß-]+)? (?:geht|ging|klappt|klappte|funktioniert|funktionierte|gelang)\b[^.]{0,30}\bnicht|"
        r"(?:das|dies|es) hat (?:\w+ ){0,2}nicht (?:geklappt|funktioniert)|(?:das|dies\w*|es|die (?:aufgabe|"
        r"anfrage))(?: [\wäöüß-]+)? (?:ist|war|wäre) (?:\w+ ){0,2}(?:nicht (?:möglich|machbar|erlaubt|gestattet)|"
        r"unmöglich)|(?:das|dies\w*) (?:verstößt|widerspricht) [^.]{0,20}mein|(?:mir|uns|dafür|dazu|hierfür) "
        r"(?:fehlt|fehlen)\b|(?:mir|uns) (?:liegt|liegen|wurde|ist|war)\b[^.]{0,60}\b(?:nicht|kein\w*)\b|als (?:ki|"
        r"sprachmodell|assistent)\b|(?:ich|wir) (?:bin|sind) (?:[\wäöüß-]+ ){0,4}gescheitert|(?:kann|konnte|können|"
        r"konnten)"
        r" (?:ich|wir) (?:[\wäöüß-]+ ){0,5}(?:nicht|kein\w*)\b)",
    )
    + r"|(?:deshalb|daher|darum|also) (?:gibt|gab) es (?:\w+ )?nichts zu|leider\b.*\b(?:nicht|kein\w*)\b",
    missing=(
        r"\b(?:datei\w*|ordner|dokument|anhang|verzeichnis|seite|link|bild|pdf|tabelle)\b(?:[^.!?]|"
        r"\.(?=\w)){0,60}\b(?:nicht (?:\w+ )?"
        r"(?:gefunden|gelesen|geöffnet|vorhanden|lesbar|zugänglich|verfügbar|auffindbar|angehängt|beigefügt)|existiert "
        r"nicht)"
    ),
    failed=(
        r"(?:fehler|zugriff verweigert|zeitüberschreitung|verbindung (?:fehlgeschlagen|abgelehnt|"
        r"unterbrochen))\W*(?:$|:)"
        r"|(?:die|der|das|dieser|diese) (?:aufgabe|arbeit|auftrag|vorgang|anfrage|befehl|verbindung|zugriff|ausführung"
        r"|bearbeitung|datei)\b[^.]{0,60}\b(?:nicht|fehlgeschlagen|gescheitert|abgebrochen|verweigert|fehlt)\W*(?:$|"
        r"\w+\W*$)"
        r"|(?:fehlgeschlagen|gescheitert|abgebrochen)\W*$"
    ),
    promises=(
        r"(?:(?:ja|gut|gerne?|okay|alles klar|klar|verstanden|in ordnung|danke|natürlich)[,.!: ]+)*(?:(?:ich|wir) "
        r"(?:werden?|kümmere|melde|mache (?:mich|das|es)|fange|beginne|starte|arbeite|erledige|bearbeite|bin "
        r"(?:dabei|dran"
        r"|gleich)|schaue|sehe (?:mir|nach)|(?:lese|prüfe|öffne|suche|schreibe|hole) (?:\w+ ){0,4}(?:jetzt|nun|zuerst|"
        r"zunächst|gleich|sofort))\b|(?:gleich|sofort|jetzt|nun|zuerst|zunächst|als erstes) (?:werde|lese|prüfe|schaue|"
        r"beginne|öffne|fange|mache) ich\b|lass(?:en sie|t)? mich\b|wird (?:\w+ )?(?:erledigt|gemacht)|(?:nur )?einen "
        r"(?:moment|augenblick)\b|(?:moment|augenblick)(?:[,.! ]+(?:bitte|mal|noch))\b|bin (?:dran|dabei)\b|in "
        r"arbeit\W*$|bitte (?:warten|haben sie geduld|etwas geduld))"
    ),
    received=r"verstanden|in ordnung|alles klar|gerne?|natürlich|danke|klar|geht klar|erhalten|zur kenntnis genommen",
    done=(
        r"siehe (?:anhang|anlage|datei|oben|unten|bericht)|(?:(?:alles|schon|bereits|ist) )*(?:erledigt|fertig|"
        r"abgeschlossen|gemacht)\W*$|(?:ich|wir) (?:habe|haben)\b"
        r"[^.]{0,60}\b(?:erledigt|abgeschlossen|fertig\w*|geschrieben|erstellt|gespeichert|aktualisiert|bearbeitet|"
        r"geändert"
        r"|angepasst|korrigiert|ausgeführt|zusammengefasst|überarbeitet|übersetzt)\W*$|(?:die|der|das)(?: \w+){1,2} "
        r"(?:ist|"
        r"wurde|sind|wurden)\b[^.]{0,40}\b(?:erledigt|abgeschlossen|fertig\w*|aktualisiert|gespeichert|erstellt)\W*$"
    ),
    asks=(
        r"\bich verstehe\b[^.]{0,40}\bnicht\b|\b(?:ich|wir) (?:brauche|benötige|brauchen|benötigen)\b|\b(?:können|"
        r"könnten|würden) sie (?:mir|bitte)\b|"
        r"\b(?:kannst|könntest|würdest) du (?:mir|bitte)\b|^(?:bitte )?(?:gib|geben sie|nenne|nennen sie|schick|"
        r"schicken "
        r"sie|sende|senden sie|teile|teilen sie) (?:mir|uns)\b|^bitte (?:lade|laden|füge|fügen|sende|senden|schicke|"
        r"klär"
        r"|stell|präzisier|bestätig|ergänz)|\bmir ist (?:nicht klar|unklar)\b"
    ),
    offers=(
        r"(?:viel )?(?:erfolg|spaß)|ich hoffe|möchten sie|soll ich|wenn (?:du|sie)|gern\w* (?:helfe|passe)|melde "
        r"dich"
    ),
    ignorant=r"\b(?:ich weiß|das weiß ich) (?:es |das |leider )*nicht\b|\bkeine (?:information|ahnung|angabe)",
    condition=(
        r"aber|wenn|falls|sofern|nur|vorausgesetzt|unter (?:der|dem|einer|einem|vorbehalt)|solange|sobald|allerdings|"
        r"jedoch|außer|bis auf|wobei|im prinzip|grundsätzlich|mit (?:\w+ )?(?:vorbehalt|einschränkung|auflage)\w*|es "
        r"sei denn"
    ),
)

FRENCH = Phrases(
    sorry=r"(?:je suis |vraiment )*(?:désolée?|navrée?)|toutes mes excuses|je m'excuse|pardon\b|excusez",
    unable=_unless(
        r"\b(?:croire|attendre|vivre|oublier|dormir)\b|\b(?:trouver|déceler|constater) (?:d'erreur|d'écart|de "
        r"problème|aucune? (?:erreur|écart|problème))",
        r"(?:(?:(?:je suis )?désolée?|malheureusement|hélas|mais|donc)[, ]+)*(?:(?:je|nous) (?:ne |n')(?:\w+ "
        r")?(?:peux|pouvons|pouvais|pourrai|puis|parviens|parvenons|réussis|arrive|suis pas (?:en mesure|autorisée?|"
        r"capable|habilitée?)|dispose|sais pas (?:faire|ouvrir|lire)|souhaite pas|veux pas|ferai|suis parvenue?|vais "
        r"pas)\b|(?:je|nous) n'(?:ai|avons|arrive|y arrive|avais) (?:malheureusement |toujours )*(?:pas|aucun\w*) "
        r"(?:pu|réussi|accès|trouvé le|trouvé la|trouvé ce|pas|l'accès|l'autorisation|la possibilité|les droits|"
        r"d'accès|d'outil|accès|moyen|fini|terminé|été)|(?:cela|ça|ce|c')[ ']?(?:n')?est (?:pas|malheureusement pas|"
        r"im)\s?possible|(?:il|cela) (?:m'est|m'a été) impossible|impossible (?:de|d'|pour moi)|je (?:refuse|dois "
        r"(?:refuser|décliner)|suis (?:incapable|dans l'(?:impossibilité|incapacité)))|en tant qu(?:e |')(?:ia|modèle|"
        r"assistant)|cela (?:va à l'encontre|enfreint|dépasse))",
    ),
    missing=(
        r"\b(?:fichier|dossier|document|page|lien|pièce jointe|répertoire|image)s?\b(?:[^.!?]|"
        r"\.(?=\w)){0,60}(?:introuvable|n'existe pas|"
        r"(?:n'a|n'est|n'ont|ne) (?:\w+ )?pas (?:été |pu être )?(?:trouvé|accessible|fourni|joint|lisible|ouvert|lu|"
        r"disponible|s'ouvr)|illisible|manquante?\W*$)"
    ),
    failed=(
        r"(?:erreur|échec|accès refusé|délai dépassé)\W*(?:$|:|de |lors )|(?:la|le|cette|ce) (?:tâche|travail|requête|"
        r"commande|opération|demande|connexion)\b[^.]{0,40}\b(?:échoué|n'a pas (?:pu|abouti|fonctionné)|refusée?|"
        r"expiré)"
    ),
    promises=(
        r"(?:(?:oui|bien|bien sûr|d'accord|très bien|entendu|compris|parfait|merci)[,.!: ]+)*(?:(?:je|nous) (?:vais|"
        r"allons|"
        r"m'en occupe|m'y mets|nous en occupons|commence|démarre|reviens|regarde|vérifie|travaille|m'occupe|suis en "
        r"train|"
        r"ferai|vous (?:tiens|réponds|enverrai|reviens))\b|laisse[rz]?-moi\b|(?:un|juste un) (?:instant|moment)\b|"
        r"(?:veuillez )?patient(?:er|ez)\b|en cours\W*$|c'est parti\b|permettez-moi\b|(?:d'abord|tout d'abord|"
        r"maintenant), je )"
    ),
    received=r"merci(?: beaucoup)?|d'accord|bien sûr|compris|entendu|bien reçu|parfait|très bien|c'est noté|noté",
    done=(
        r"voir (?:la )?(?:pièce jointe|fichier|ci-)|ci-joint|(?:c'est |voilà, c'est )?(?:fait|terminée?|fini|prêt|"
        r"achevée?)\W*$|(?:j'ai|nous avons) (?:bien |déjà |tout )*"
        r"(?:terminé|fini|effectué|mis à jour|modifié|créé|rédigé|écrit|complété|corrigé|enregistré|réalisé|préparé|"
        r"ajouté)\b|"
        r"(?:la|le|tout|les)\b[^.]{0,40}\b(?:a été|ont été|est|sont) (?:bien |maintenant )*(?:terminé|achevé|"
        r"effectué|mis|"
        r"créé|rédigé|complété|enregistré|fait|accompli)e?s?\b"
    ),
    asks=(
        r"\bje ne comprends pas\b|\bj'ai besoin\b|\bil me (?:faut|manque)\b|\bpourriez-vous\b|\bpouvez-vous\b|"
        r"\bpeux-tu\b|\bpourrais-tu\b|"
        r"^(?:veuillez|merci de|prière de) (?:me |nous )?(?:fournir|préciser|indiquer|envoyer|joindre|confirmer|"
        r"partager)|"
        r"\b(?:fournissez|précisez|indiquez|envoyez)(?:-moi| le| la| les)\b"
    ),
    offers=r"n'hésitez pas|j'espère|souhaitez-vous|voulez-vous|si vous (?:voulez|souhaitez|avez)|bonne chance",
    ignorant=r"\bje ne sais pas\b|\bje l'ignore\b|\baucune information\b",
    condition=(
        r"mais|sauf|si|s'il|sous (?:réserve|condition)|à (?:la )?condition|pourvu|seulement|uniquement|à moins|"
        r"toutefois|"
        r"cependant|avec (?:des |une |quelques )?réserves?|tant que|dès que|en principe|moyennant"
    ),
)

SPANISH = Phrases(
    sorry=r"(?:lo )?(?:siento|lamento)\b|perd[oó]n\b|disculp|mis disculpas|lamentablemente",
    unable=_unless(
        r"\b(?:vivir|creer|creerlo|esperar|olvidar|dormir|dejar de)\b|\b(?:encontrar|detectar|encontrado) (?:ningún|"
        r"ninguna|errores|problemas)",
        r"(?:(?:lo siento|me temo que|lo lamento|lamentablemente|desafortunadamente|desgraciadamente|por desgracia|"
        r"perdón|pero|"
        r"así que|por tanto)[, ]+)*(?:(?:yo )?no (?:(?:me|le|te|lo|la|os|les) )*"
        r"(?:dispongo de|cuento con|puedo|podemos|pude|pudimos|"
        r"podr[éí]a?|(?:he|hemos) (?:podido|conseguido|logrado|encontrado (?:el|la|los|las)\b)|logré|conseguí|soy "
        r"capaz|estoy (?:autorizad|en condiciones|segur)|tengo (?:acceso|permiso|autorización|la capacidad|forma|"
        r"suficiente|información|herramient|manera)|voy a (?:poder|hacer)|haré|encontré (?:el|la)\b|debo|deseo)|no "
        r"(?:fue|ha sido) posible|no es posible (?:completar|hacer|realizar|abrir|leer|acceder|acabar|terminar|"
        r"procesar|cumplir|ayudar)|eso no es posible|(?:me (?:es|resulta|fue|resultó) imposible|me niego|debo "
        r"(?:rechazar|negarme|declinar))|como (?:ia|modelo|asistente|un modelo|una ia)\b|(?:eso|esto) (?:está fuera|"
        r"va en contra|infringe|incumple))",
    ),
    missing=(
        r"\b(?:archivo|fichero|carpeta|documento|página|enlace|adjunto|directorio|imagen)s?\b(?:[^.!?]|"
        r"\.(?=\w)){0,60}(?:no (?:existe|se "
        r"(?:encontró|encuentra|pudo|puede abrir|puede leer|ha (?:podido|encontrado))|está (?:disponible|adjunto)|fue "
        r"(?:encontrado|proporcionado)|encontrado)|ilegible)|^no (?:existe|se encontró|hay|se encuentra) (?:el |la |"
        r"ningún |"
        r"ninguna )?(?:archivo|fichero|carpeta|documento|adjunto)"
    ),
    failed=(
        r"(?:error|fallo)\W*(?::|al )|(?:acceso denegado|permiso denegado|tiempo (?:de espera )?agotado)\W*(?:$|:|al "
        r")|(?:la|el|esta|"
        r"este) "
        r"(?:tarea|trabajo|solicitud|orden|operación|conexión|comando)\b[^.]{0,40}\b(?:falló|ha fallado|no (?:se "
        r")?(?:pudo|ha "
        r"podido|terminó)|rechazad|fracas)"
    ),
    promises=(
        r"(?:(?:sí|bien|claro|vale|de acuerdo|entendido|perfecto|por supuesto|muy bien|gracias)[,.!: ]+)*(?:(?:ahora "
        r"|ahora mismo |primero "
        r"|enseguida |ya )*(?:lo |la |me |te |le )*(?:haré|hago|haremos|voy a|vamos a|ocupo|pongo|ocuparé|pondré|"
        r"encargo|"
        r"encargaré|empiezo|empezaré|comienzo|comenzaré|comenzando|empezando|revisaré|revisando|estoy (?:trabajando|"
        r"en ello|"
        r"revisando|preparando|en eso)|avisaré|informaré|enviaré|responderé|prepararé|trabajaré|leeré|buscaré)\b|"
        r"déjame\b|"
        r"permítame\b|un (?:momento|segundo|minuto)\b|en (?:curso|proceso)\W*$|espere\b|por favor,? espere)"
    ),
    received=(
        r"entendido|vale|por supuesto|gracias|muchas gracias|claro(?: que sí)?|de acuerdo|perfecto|recibido|muy bien"
    ),
    done=(
        r"ver (?:el )?(?:archivo|adjunto)|adjunto\W*$|véase|(?:ya está )?(?:hecho|listo|terminado|completado|"
        r"finalizado|acabado)\W*$|(?:ya )?(?:he|hemos) (?:\w+ "
        r")?(?:terminado|"
        r"completado|actualizado|creado|escrito|hecho|modificado|guardado|corregido|preparado|redactado|realizado|"
        r"añadido)\b|"
        r"(?:la|el|todo|los|las)\b[^.]{0,40}\b(?:ha sido|han sido|fue|está|está ya|están) (?:ya )?(?:completad|"
        r"terminad|"
        r"actualizad|cread|guardad|hech|finalizad|realizad)|tarea (?:completada|terminada|finalizada)"
    ),
    asks=(
        r"\bno (?:lo )?entiendo\b|\bnecesito (?:saber|más|que|el|la|un|una|acceso)\b|\bme (?:falta|faltan)\b|"
        r"\bpodrías?\b|\bpuedes? "
        r"(?:decirme|darme|"
        r"enviarme|aclarar|indicar|proporcionar)|^(?:por favor,? )?(?:proporciona|indica|envía|aclara|especifica|"
        r"comparte|"
        r"adjunta|confirma|facilita)(?:me|r|n)?\b"
    ),
    offers=r"espero que|si (?:quieres|desea|necesitas)|¿?(?:quieres|desea|te gustaría)|avísame|buena suerte",
    ignorant=r"\bno (?:lo )?sé\b|\bdesconozco\b|\bsin información\b",
    condition=(
        r"pero|si|siempre (?:que|y cuando)|a condición|con (?:la |una )?condición|con (?:\w+ )?reservas?|salvo|"
        r"excepto|s[oó]lo|"
        r"solamente|únicamente|aunque|con tal|sujeto a|a menos|en principio|sin embargo|no obstante|a reserva"
    ),
)

PORTUGUESE = Phrases(
    sorry=r"(?:me )?desculp|lamento|sinto muito|infelizmente|peço desculpa|perdão",
    unable=_unless(
        r"\b(?:viver|acreditar|esperar|esquecer|dormir)\b|\b(?:encontrar|encontrei|detectar) (?:nenhum|erros|"
        r"problemas)",
        r"(?:(?:desculpe|lamento|sinto muito|infelizmente|mas|portanto)[, ]+)*(?:(?:eu )?n[ãa]o (?:(?:me|lhe|te|o|a) "
        r")*(?:posso|podemos|pude|consigo|consegui|conseguimos|conseguirei|poderei|estou (?:autorizad|em condições|"
        r"apto)|tenho (?:acesso|permissão|autorização|capacidade|como|ferramenta|informações|informação)|vou "
        r"(?:poder|fazer)|farei|sou capaz|encontrei (?:o|a)\b)|n[ãa]o (?:foi|me foi|me é) possível|n[ãa]o é possível "
        r"(?:completar|concluir|fazer|abrir|ler|acessar|aceder|terminar|ajudar)|isso não é possível|(?:me recuso|"
        r"recuso|devo recusar|preciso recusar)|como (?:ia|modelo|assistente|um modelo|uma ia)\b|(?:isso|isto) "
        r"(?:está fora|vai contra|viola))",
    ),
    missing=(
        r"\b(?:arquivo|ficheiro|pasta|documento|página|link|anexo|diretório|imagem)s?\b(?:[^.!?]|"
        r"\.(?=\w)){0,60}(?:n[ãa]o (?:existe|foi "
        r"(?:encontrad|fornecid|anexad|possível)|est[áa] (?:disponível|acessível)|encontrad|pôde|p[ôo]de ser|abre)|"
        r"ilegível)"
    ),
    failed=(
        r"(?:erro|falha|acesso negado|permissão negada|tempo esgotado)\W*(?:$|:|ao )|(?:a|o|esta|este) (?:tarefa|"
        r"trabalho|"
        r"solicitação|pedido|operação|comando|conexão)\b[^.]{0,40}\b(?:falhou|n[ãa]o (?:foi|p[ôo]de|terminou)|"
        r"recusad|negad)"
    ),
    promises=(
        r"(?:(?:sim|certo|claro|ok|tudo bem|entendido|perfeito|com certeza|obrigad[oa])[,.!: ]+)*(?:(?:agora |"
        r"primeiro |já |eu )*"
        r"(?:vou|vamos|farei|faremos|irei|começarei|começo|estou (?:trabalhando|a trabalhar|verificando|preparando|"
        r"nisso)|"
        r"trabalharei|cuidarei|tratarei|verificarei|avisarei|enviarei|responderei)\b|deixe-me\b|deixa eu\b|um "
        r"(?:momento|"
        r"instante|minuto)\b|(?:por favor,? )?aguarde\b|em andamento\W*$)"
    ),
    received=r"entendido|obrigad[oa]|certo|claro|com certeza|perfeito|recebido|tudo bem|de acordo",
    done=(
        r"(?:ver|veja) (?:o )?(?:anexo|arquivo)|(?:já está |está )?(?:feito|pronto|concluíd[oa]|terminad[oa]|"
        r"finalizad[oa])\W*$|(?:já )?(?:eu )?(?:concluí|"
        r"terminei|"
        r"atualizei|criei|escrevi|fiz|corrigi|salvei|guardei|preparei|completei|finalizei|adicionei)\b|(?:a|o|tudo|"
        r"os|as)\b[^.]"
        r"{0,40}\b(?:foi|foram|está|estão) (?:\w+ )?(?:concluíd|atualizad|criad|salv|feit|finalizad|terminad)|tarefa "
        r"(?:concluída|"
        r"finalizada)"
    ),
    asks=(
        r"\bn[ãa]o (?:entendo|entendi|compreendo)\b|\bpreciso (?:saber|de|que)\b|\b(?:você )?(?:poderia|pode) (?:me |"
        r"por favor )*(?:dizer|informar|enviar|"
        r"esclarecer|fornecer|"
        r"confirmar)|^(?:por favor,? )?(?:forneça|informe|envie|esclareça|especifique|compartilhe|confirme)\b"
    ),
    offers=r"espero que|se (?:quiser|precisar|desejar)|gostaria que|boa sorte",
    ignorant=r"\bn[ãa]o sei\b|\bdesconheço\b",
    condition=(
        r"mas|se|desde que|contanto|a menos|salvo|exceto|porém|contudo|só (?:se|que)|apenas (?:se|com)|caso|com (?:a "
        r")?(?:condição|"
        r"ressalvas?|reservas?)|em princípio|sob (?:condição|reserva)|sujeito a|embora"
    ),
)

ITALIAN = Phrases(
    sorry=r"mi (?:dispiace|scuso)|(?:mi )?scus[ai]|purtroppo|sono spiacente",
    unable=_unless(
        r"\b(?:vivere|credere|crederci|aspettare|dimenticare|dormire)\b|\btrovare (?:errori|problemi|alcun)",
        r"(?:(?:mi dispiace|purtroppo|scusa|ma|quindi)[, ]+)*(?:(?:io )?non (?:(?:mi|ti|le|lo|la|vi) )*(?:posso|"
        r"possiamo|riesco|riusciamo|ho (?:potuto|accesso|il permesso|i permessi|trovato (?:il|la|l')|modo|abbastanza|"
        r"strumenti|la possibilità|informazioni)|potrò|potevo|sono (?:riuscit|in grado|autorizzat|stat[oa] in grado)|"
        r"farò|intendo)|non (?:è|è stato|mi è) possibile (?:completare|fare|aprire|leggere|accedere|terminare|"
        r"aiutare|eseguire)|(?:questo|ciò) non (?:mi )?è possibile|mi (?:è impossibile|rifiuto)|devo rifiutare|come "
        r"(?:ia|modello|assistente)\b|(?:questo|ciò) (?:va contro|viola|è contrario))",
    ),
    missing=(
        r"\b(?:file|cartella|documento|pagina|allegato|directory|immagine)\b(?:[^.!?]|\.(?=\w)){0,60}(?:non "
        r"(?:esiste|è (?:stat[oa] )?(?:trovat|"
        r"disponibile|accessibile|allegat|leggibile)|trovat|si apre)|illeggibile|inesistente)"
    ),
    failed=(
        r"(?:errore|accesso negato|permesso negato|tempo scaduto)\W*(?:$|:|durante )|(?:il|la|l'|questo|questa) "
        r"?(?:compito|lavoro|"
        r"richiesta|operazione|comando|attività|connessione)\b[^.]{0,40}\b(?:fallit|non (?:è|ha)|rifiutat|negat)"
    ),
    promises=(
        r"(?:(?:sì|certo|va bene|bene|capito|perfetto|ok|grazie)[,.!: ]+)*(?:(?:ora |adesso |prima |subito |io "
        r")*(?:(?:me ne|lo|ci|mi) )*"
        r"(?:farò|faccio (?:subito|ora)|occupo|occuperò|inizio|inizierò|comincio|comincerò|metto al|sto (?:lavorando|"
        r"verificando|"
        r"preparando|per)|controllerò|verificherò|leggerò|preparerò|invierò|risponderò|procedo|procederò)\b|"
        r"lasciami\b|mi lasci\b|"
        r"un (?:momento|attimo|istante)\b|attend[aei]\b|in corso\W*$)"
    ),
    received=r"certo|capito|va bene|grazie|perfetto|d'accordo|ricevuto|certamente|inteso",
    done=(
        r"vedi (?:l')?(?:allegato|file)|in allegato|(?:è |tutto )?(?:fatto|completato|finito|terminato|pronto)\W*$|"
        r"(?:ho|abbiamo) (?:\w+ )?(?:completato|"
        r"aggiornato|creato|"
        r"scritto|fatto|finito|modificato|salvato|corretto|preparato|terminato|aggiunto)\b|(?:il|la|lo|tutto|"
        r"l')\b[^.]{0,40}\bè stat[oa] "
        r"(?:completat|aggiornat|creat|salvat|fatt|terminat)"
    ),
    asks=(
        r"\bnon (?:capisco|ho capito)\b|\bho bisogno\b|\bmi (?:serve|servono|manca)\b|\b(?:potrebbe|potresti|può|"
        r"puoi) (?:dirmi|fornire|fornirmi|"
        r"inviar|indicar|"
        r"chiarire|confermare)|^(?:per favore,? )?(?:fornisci|indica|invia|chiarisci|specifica|conferma)\b"
    ),
    offers=r"spero che|se (?:vuoi|desidera|hai bisogno)|fammi sapere|buona fortuna",
    ignorant=r"\bnon (?:lo )?so\b",
    condition=(
        r"ma|se|purché|a (?:condizione|patto|meno)|però|tranne|salvo|eccetto|con (?:\w+ )?riserv\w+|solo|soltanto|"
        r"sempre che|"
        r"tuttavia|in linea di principio|fintanto"
    ),
)

DUTCH = Phrases(
    sorry=r"(?:het )?spijt me|excuses|mijn excuses|helaas",
    unable=_unless(
        r"\b(?:geloven|wachten|slapen|vergeten)\b|\bgeen (?:fout|probleem|verschil)\w*",
        r"(?:(?:sorry|helaas|het spijt me|maar|dus)[, ]+)*(?:(?:ik|wij|we) (?:kan|kon|kunnen|konden|mag|mocht|wil|"
        r"zal)\b[^.]{0,80}\b(?:niet|geen)\b|(?:ik|wij|we) (?:heb|hebben) (?:\w+ )?geen (?:toegang|toestemming|"
        r"mogelijkheid|rechten|informatie)|(?:dat|dit|daarbij|daarmee|het bestand|de \w+) (?:kan|kon|mag) "
        r"ik\b[^.]{0,60}\b(?:niet|geen)\b|(?:dat|dit|het) (?:lukt|lukte|gaat|ging) (?:\w+ ){0,2}niet|(?:dat|dit|het) "
        r"is (?:\w+ ){0,2}(?:niet mogelijk|onmogelijk)|ik (?:weiger|ben niet (?:in staat|bevoegd))|als (?:ai|"
        r"taalmodel)\b)",
    ),
    missing=(
        r"\b(?:bestand|map|document|bijlage|pagina|link)\b(?:[^.!?]|\.(?=\w)){0,60}(?:niet (?:gevonden|beschikbaar|"
        r"leesbaar|toegankelijk|bijgevoegd)|"
        r"bestaat niet|ontbreekt)"
    ),
    failed=(
        r"(?:fout|toegang geweigerd|mislukt)\W*(?:$|:)|(?:de|het|deze|dit) (?:taak|opdracht|werk|verzoek|"
        r"bewerking)\b[^.]{0,40}"
        r"\b(?:mislukt|niet (?:gelukt|voltooid|uitgevoerd|mogelijk)|geweigerd)"
    ),
    promises=(
        r"(?:(?:ja|goed|prima|oké|ok|zeker|begrepen|bedankt)[,.!: ]+)*(?:ik (?:zal|ga|begin|start|kijk|regel|pak|"
        r"werk eraan|ben bezig|kom "
        r"erop terug|meld)\b|laat me\b|(?:een|één) (?:moment|ogenblik)\b|even geduld\b|wordt (?:geregeld|gedaan)\b)"
    ),
    received=r"begrepen|prima|bedankt|dank je|zeker|natuurlijk|in orde|ontvangen|akkoord",
    done=(
        r"zie (?:bijlage|bestand|boven|onder)|(?:alles is |is )?(?:klaar|gedaan|voltooid|afgerond)\W*$|ik "
        r"heb\b[^.]{0,60}\b(?:voltooid|afgerond|"
        r"bijgewerkt|gemaakt|"
        r"geschreven|aangepast|opgeslagen|gedaan)\W*$|(?:de|het) \w+ is (?:\w+ )?(?:voltooid|afgerond|bijgewerkt|"
        r"klaar|gedaan)\W*$"
    ),
    asks=(
        r"\bik begrijp\b[^.]{0,30}\bniet\b|\bik heb (?:\w+ )?nodig\b|\b(?:kun|kunt|kan|zou) (?:je|u) (?:me|mij|"
        r"alsjeblieft|alstublieft)\b|^(?:geef|"
        r"stuur|vermeld) (?:me|mij)\b"
    ),
    offers=r"ik hoop|als (?:je|u) (?:wil|meer)|wil (?:je|u)|laat het (?:me|mij) weten|veel succes",
    ignorant=r"\b(?:ik weet|dat weet ik) (?:het )?niet\b|\bgeen (?:idee|informatie)\b",
    condition=(
        r"maar|als|indien|mits|tenzij|alleen|onder (?:voorwaarde|voorbehoud)|behalve|zolang|zodra|echter|in principe"
    ),
)

POLISH = Phrases(
    sorry=r"przykro mi|przepraszam|niestety|wybacz",
    unable=_unless(
        r"\b(?:uwierzyć|zapomnieć|czekać|spać|żyć)\b|\b(?:znaleźć|wykryć) (?:żadnych |błęd|problem)",
        r"(?:(?:niestety|przykro mi|przepraszam|ale|więc)[, ]+)*(?:(?:ja )?(?:tego |to |teraz |obecnie |w tym )*nie "
        r"(?:mogę|możemy|mogłem|mogłam|udało|potrafię|potrafimy|jestem w stanie|mam (?:dostępu|uprawnień|możliwości|"
        r"informacji|narzędzi)|da się|zrobię|wolno|znalazł[ae]m (?:pliku|dokumentu)|zdołał[ae]m|powiodło)|odmawiam|"
        r"muszę odmówić|to (?:jest )?(?:niemożliwe|nie jest możliwe)|jako (?:model|asystent|ai)\b|(?:to|to żądanie) "
        r"(?:narusza|jest sprzeczne))",
    ),
    missing=(
        r"\b(?:plik|pliku|folder|katalog|dokument|strona|załącznik|link)\b(?:[^.!?]|\.(?=\w)){0,60}(?:nie "
        r"(?:istnieje|został|jest dostępn|ma|można|"
        r"udało)|brakuje)|^(?:brak|nie znaleziono) (?:\w+ )?(?:pliku|dokumentu|dostępu|uprawnień|załącznika|folderu)"
    ),
    failed=(
        r"(?:błąd|odmowa dostępu|brak dostępu|przekroczono)\b\W*(?:$|:|\w+)|(?:zadanie|operacja|polecenie|"
        r"żądanie)\b[^.]{0,40}\b(?:nie powiodł|nie został|odrzucon)"
    ),
    promises=(
        r"(?:(?:tak|dobrze|jasne|oczywiście|ok|rozumiem|dziękuję)[,.!: ]+)*(?:(?:już |teraz |zaraz |najpierw |od "
        r"razu )*(?:zajmę się|zrobię|"
        r"zaczynam|zacznę|sprawdzę|sprawdzam|przygotuję|pracuję|wykonam|odezwę się|przeczytam|biorę się|rozpoczynam|"
        r"wyślę|będę)\b|"
        r"(?:chwil(?:a|ę|eczkę)|momencik|minutkę)\b|proszę (?:czekać|o cierpliwość|chwilę)|pozwól)"
    ),
    received=r"rozumiem|dobrze|dziękuję|jasne|oczywiście|przyjąłem|przyjęto|zrozumiano|w porządku",
    done=(
        r"(?:patrz|w) załącznik|(?:już )?(?:gotowe|zrobione|wykonane|ukończone|zakończone)\W*$|(?:(?:już|zadanie|"
        r"pracę|plik|to) )*(?:zakończył|"
        r"ukończył|"
        r"zaktualizował|napisał|zrobił|"
        r"przygotował|utworzył|poprawił|zapisał|wykonał)[ae]m\b|(?:zadanie|praca|plik|"
        r"dokument)\b[^.]{0,30}\b(?:został\w*) (?:\w+ )?"
        r"(?:ukończon|wykonan|zaktualizowan|zapisan|utworzon)"
    ),
    asks=(
        r"\bnie rozumiem\b|\bpotrzebuję\b|^(?:proszę |prosimy )?(?:podaj|podać|prześlij|przesłać|wyjaśnij|doprecyzuj|"
        r"o (?:podanie|"
        r"przesłanie|doprecyzowanie))\b|\bczy (?:możesz|mógłbyś|mogłabyś)\b"
    ),
    offers=r"mam nadzieję|jeśli (?:chcesz|potrzebujesz)|powodzenia|daj znać",
    ignorant=r"\bnie wiem\b|\bbrak informacji\b",
    condition=(
        r"ale|jeśli|jeżeli|pod warunkiem|o ile|chyba|tylko|z (?:\w+ )?zastrzeżeni\w+|jednak|oprócz|dopóki|gdy|w "
        r"zasadzie|z wyjątkiem"
    ),
)

RUSSIAN = Phrases(
    sorry=r"извини|прости|прошу прощения|к сожалению|сожалею|приношу извинения|увы",
    unable=_unless(
        r"(?:поверить|забыть|дождаться|уснуть|жить)|(?:найти|обнаружить) (?:ошиб|проблем|расхожд|отличи)",
        r"(?:(?:к сожалению|извините|простите|увы|но|поэтому)[, ]+)*(?:(?:я |мы |мне |нам )?(?:этого |это |пока |"
        r"сейчас |просто |также |здесь )*не (?:могу|можем|смог|смогла|смогу|удалось|получилось|получается|имею "
        r"(?:доступа|права|возможности)|буду|в состоянии|вправе|умею|нашёл (?:файл|документ)|нашел (?:файл|документ))|"
        r"отказываюсь|вынужден\w* отказать|это (?:невозможно|выходит за|противоречит|нарушает)|у меня нет (?:доступа|"
        r"прав|возможности|информации|инструмент|данных|разрешения)|(?:этого|это|файл|документ) (?:я )?(?:\w+ )?не "
        r"(?:могу|удалось|смог)|как (?:ии|языковая модель|искусственный интеллект)|(?:\w+ ){0,4}я (?:\w+ ){0,4}не "
        r"(?:могу|смог|смогла)\b)",
    ),
    missing=(
        rf"(?:файл|папк|страниц|документ|каталог|вложени|ссылк)\w*{_UP_TO}(?:не (?:найден|существует|обнаружен|"
        r"открыва|доступ|"
        r"прикреплен|прикреплён|читается|удалось)|отсутствует)"
    ),
    failed=(
        r"(?:ошибка|сбой|доступ запрещ[её]н|отказано в доступе|время ожидания истекло)\W*(?:$|:)|(?:задача|задание|"
        r"операция|запрос|команда)"
        r"\b[^.]{0,40}\b(?:не выполнен|провален|отклон|прерван|завершил\w* (?:с ошибкой|неудач))"
    ),
    promises=(
        r"(?:(?:да|хорошо|понял\w*|принято|конечно|ладно|спасибо)[,.!: ]+)*(?:(?:сейчас |сразу |уже |скоро |сначала |"
        r"я |мы )*(?:займусь|сделаю|"
        r"начну|начинаю|приступаю|приступлю|проверю|посмотрю|выполню|подготовлю|отправлю|прочитаю|изучу|работаю|"
        r"пришлю|собираюсь|постараюсь|"
        r"сообщу|займёмся|буду (?:работать|делать|готовить))\b|(?:подождите|минут(?:у|ку|очку)|одну минуту|один "
        r"момент|секунду)\b|"
        r"позвольте мне\b|в работе\W*$|в процессе\W*$)"
    ),
    received=r"(?:я )?понял[аи]?|хорошо|понятно|принято|спасибо|ясно|конечно|получено|ладно|договорились",
    done=(
        r"(?:см\.?|смотрите) (?:вложение|файл|выше|ниже)|во вложении|(?:всё |все |уже )*(?:готово|сделано|выполнено|"
        r"завершено|закончено)\W*$|(?:я )?(?:успешно |уже "
        r")*(?:выполнил|завершил|закончил|"
        r"обновил|исправил|создал|подготовил|написал|сохранил)а?\b|(?:задача|работа|задание|файл|отч[её]т|"
        r"документ)\b[^.]{0,30}\b(?:выполнен|"
        r"завершен|завершён|обновлен|обновлён|сохранен|сохранён|создан|готов)\w*\W*$"
    ),
    asks=(
        r"\bне (?:понимаю|понял|поняла)\b|(?:пожалуйста|прошу)[, ]*(?:уточните|предоставьте|пришлите|укажите|"
        r"прикрепите|сообщите|отправьте)|"
        r"^(?:уточните|пришлите|"
        r"предоставьте|укажите)\b|\bмне (?:нужн|нужен|необходим|требуется)|\bне (?:ясно|понятно),"
    ),
    offers=r"надеюсь|если (?:хотите|нужно|вам)|удачи|дайте знать",
    ignorant=r"\bне знаю\b|\bнет информации\b",
    condition=(
        r"но|если|при условии|только|кроме|с (?:\w+ )?оговорк\w+|однако|хотя|после|пока|за исключением|в принципе|"
        r"при этом"
    ),
)

CZECH = Phrases(
    sorry=r"omlouvám se|je mi (?:to )?líto|lituji|bohužel|promiň|mrzí mě|ospravedlňujem|prepáč|bohužiaľ|žiaľ",
    unable=_unless(
        r"\b(?:uvěřit|zapomenout|dočkat|spát|žít)\b|\b(?:najít|našl?[ea]l?a?|nena\w+)\b[^.]{0,30}(?:žádn|chyb|rozdíl|"
        r"problém)",
        r"(?:(?:bohužel|omlouvám se|je mi (?:to )?líto|ale|proto|takže|a)[, ]+)*(?:(?:já |my |mi |to |toto |tohle |"
        r"úkol |se |bohužel |túto \w+ |tento \w+ |tuto \w+ |s (?:tím|tímto|tím to|touto \w+) |vám |ti |teď |"
        r"momentálně |zatím )*(?:ne(?:mohu|můžu|"
        r"môžem|"
        r"podarilo|můžeme|mohl[ai]?|smím|dokážu|dokázal[ai]?|umím|zvládnu|zvládl[ai]?|budu (?:\w+ )?moci|daří|"
        r"podařilo)\b|"
        r"ne(?:jsem|byl[ai]? jsem) (?:\w+ )?(?:schop|oprávněn|sto)|ne(?:mám|máme) (?:\w+ )?(?:přístup|oprávnění|"
        r"možnost|k dispozici|informac|nástroj|dat\b|data|údaj)|nena(?:šel|šla|lezl[ai]?) (?:jsem )?(?:\w+ )?"
        r"(?:soubor|dokument))|odmítám|musím (?:\w+ )?odmítnout|(?:to|toto|tohle) (?:není (?:\w+ )?možné|nejde|nelze)"
        r"\W*$|nelze (?:\w+ ){0,2}(?:dokončit|provést|splnit|otevřít|načíst|zpracovat|pokračovat)\b|jako (?:ai|"
        r"jazykový model|asistent|umělá inteligence)\b|(?:to|tato žádost) (?:porušuje|je v rozporu)|(?:\w+ ){0,4}"
        r"jsem (?:\w+ ){0,4}ne(?!naš)\w{2,}l[ai]?\b)",
    ),
    missing=(
        rf"\b(?:soubor|složk|dokument|stránk|adresář|příloh|odkaz)\w*{_UP_TO}(?:neexistuje|jsem (?:\w+ )?nenaš|"
        rf"neby\w+ (?:\w+ )?nalezen|"
        r"nenalezen|není (?:\w+ )?(?:dostupn|k dispozici|přístupn|přiložen)|nelze (?:otevřít|načíst|přečíst|najít)|"
        r"se (?:\w+ )?nepodařilo)|^(?:chybí|nenalezen\w*) (?:mi )?(?:soubor|přístup|oprávnění|příloha)|"
        r"\bnepodařilo se (?:mi )?(?:\w+ ){0,2}(?:otevřít|načíst|najít|přečíst|dokončit|spustit|připojit)"
    ),
    failed=(
        r"(?:chyba|přístup (?:odepřen|zamítnut)|vypršel časový limit)\W*(?:$|:)|(?:úkol|operace|příkaz|požadavek)\b"
        r"[^.]{0,40}\b(?:selhal|nebyl|nelze|nepodařil|zamítnut)"
    ),
    promises=(
        r"(?:(?:ano|dobře|jasně|jistě|ok|rozumím|děkuji|díky|samozřejmě)[,.!: ]+)*(?:(?:hned|teď|nyní|nejprve|"
        r"nejdříve|nejdřív|okamžitě|ihned|už|rovnou|se|to|do toho|na to|na tom|za chvíli) )*(?:(?:pustím|podívám|"
        r"udělám|začnu|začínám|zkontroluj[iu]|připravím|pracuj[iu]|provedu|ozvu|přečtu|pošlu|postarám|vrhnu|vyřídím|"
        r"budu (?:pracovat|pokračovat))\b|(?:chvilku|chviličku|moment|momentík|okamžik|minutku)(?:\W*$|[, ]+"
        r"prosím)|prosím (?:o strpení|"
        r"čekejte|počkejte)|dovolte mi\b)"
    ),
    received=r"rozumím|dobře|jasně|děkuji|díky|samozřejmě|jistě|přijato|beru na vědomí|v pořádku",
    done=(
        r"viz (?:příloh|soubor|výše|níže)|v příloze|(?:už |vše |je |všechno |všechno je )*(?:hotovo|hotové|dokončeno|"
        r"splněno|vyřízeno|uděláno)\W*$|(?:(?:úkol|práci|soubor|dokument|už|jsem) )*(?:dokončil|aktualizoval|napsal|"
        r"udělal|připravil|vytvořil|opravil|uložil|provedl|splnil)a?\b|(?:úkol|práce|soubor|dokument)\b[^.]{0,30}\b"
        r"(?:byl\w*|je) (?:\w+ )?(?:dokončen|splněn|aktualizován|uložen|vytvořen|hotov)"
    ),
    asks=(
        r"\bnerozumím\b|\bpotřebuj[iu]\b|^(?:prosím[, ]*)?(?:uveďte|pošlete|pošli|upřesněte|upřesni|sdělte|zašlete|"
        r"doplňte)\b|\bmůžete (?:mi|prosím)\b|\bmohl\w* byste\b"
    ),
    offers=r"doufám|pokud (?:chcete|potřebujete|budete)|dejte (?:mi )?vědět|hodně štěstí",
    ignorant=r"\bnevím\b|\bnemám informac",
    condition=(
        r"ale|pokud|jestli|jestliže|pod podmínkou|za podmínky|s (?:\w+ )?výhrad\w+|kromě|avšak|však|jen|pouze|dokud|"
        r"v zásadě|ovšem|až"
    ),
)

UKRAINIAN = Phrases(
    sorry=r"вибач|перепрошую|прошу (?:вибачення|пробачення)|на жаль|даруйте|шкода",
    unable=_unless(
        r"(?:повірити|забути|дочекатися|заснути|жити)|(?:знайти|виявити) (?:помил|проблем|розбіжн|відмінн)",
        r"(?:(?:на жаль|вибачте|перепрошую|але|тому)[, ]+)*(?:(?:я |ми |мені |нам |цього |це |поки |зараз |просто |"
        r"також |тут |з цим |вам )*не (?:можу|можемо|зміг|змогла|змогли|зможу|вдалося|вдалось|виходить|вийшло|маю "
        r"(?:\w+ )?(?:доступу|права?\b|можливості|дозволу|інформації)|буду|в змозі|вмію|здатн\w+|знайшо?[вл]а? (?:файл|"
        r"документ))|відмовляюс[яь]|змушен\w* відмов|(?:це|цей \w+) (?:неможливо|виходить за|суперечить|порушує)|"
        r"[ув] мене (?:немає|нема) (?:\w+ )?(?:доступ|прав|можлив|інформац|інструмент|даних|дозвол)|як (?:ші|мовна "
        r"модель|штучний інтелект)|(?:\w+ ){0,4}я (?:\w+ ){0,4}не (?:можу|зміг|змогла)\b)",
    ),
    missing=(
        rf"(?:файл|папк|сторінк|документ|каталог|вкладенн|посиланн)\w*{_UP_TO}(?:не (?:знайден|існує|виявлен|"
        r"відкрива|доступ|прикріплен|читається|вдалося)|відсутн)"
    ),
    failed=(
        r"(?:помилка|збій|доступ заборонен\w*|відмовлено в доступі|час очікування вичерпано)\W*(?:$|:)|(?:задача|"
        r"завдання|операція|запит|команда)\b[^.]{0,40}\b(?:не виконан|провален|відхилен|перерван)"
    ),
    promises=(
        r"(?:(?:так|добре|зрозумі(?:в|ла|ло)|прийнято|звичайно|гаразд|дякую)[,.!: ]+)*(?:(?:зараз |одразу |вже |"
        r"скоро |спочатку |спершу |негайно |я |ми )*(?:займуся|зроблю|почну|починаю|перевірю|подивлюся|виконаю|"
        r"підготую|надішлю|прочитаю|вивчу|працюю|спробую|повідомлю|візьмуся|приступаю|буду (?:працювати|робити|"
        r"готувати))\b|(?:зачекайте|хвилин(?:у|ку|очку)|один момент|секунду)\b|дозвольте мені\b|[ув] (?:роботі|"
        r"процесі)\W*$)"
    ),
    received=r"(?:я )?зрозумі(?:в|ла|ло)|добре|прийнято|дякую|ясно|звичайно|отримано|гаразд|домовилися",
    done=(
        r"(?:див\.?|дивіться) (?:вкладення|файл|вище|нижче)|у вкладенні|(?:все |усе |вже )*(?:готово|зроблено|"
        r"виконано|завершено|закінчено)\W*$|(?:я )?(?:успішно |вже )*(?:викона|заверши|закінчи|онови|виправи|створи|"
        r"підготува|написа)(?:в|ла)\b|(?:задач\w|робот\w|завдання|файл|звіт|документ)\b[^.]{0,30}\b(?:виконан|"
        r"завершен|оновлен|збережен|створен|готов)\w*\W*$"
    ),
    asks=(
        r"\bне (?:розумію|зрозумі(?:в|ла))\b|(?:будь ласка|прошу)[, ]*(?:уточніть|надайте|надішліть|вкажіть|"
        r"прикріпіть|повідомте)|^(?:уточніть|надішліть|надайте|вкажіть)\b|\bмені (?:потрібн|необхідн)|\bне (?:ясно|"
        r"зрозуміло),"
    ),
    offers=r"сподіваюс|якщо (?:хочете|потрібно|вам)|успіхів|дайте знати",
    ignorant=r"\bне знаю\b|\bнемає інформації\b",
    condition=(
        r"але|якщо|за умови|тільки|лише|крім|з (?:\w+ )?застереженн\w+|однак|проте|хоча|після|поки|за винятком|"
        r"[ув] принципі|при цьому"
    ),
)

TURKISH = Phrases(
    sorry=r"üzgünüm|özür dilerim|maalesef|ne yazık ki|kusura bakma",
    unable=(
        r"(?:(?:üzgünüm|maalesef|ne yazık ki|özür dilerim|ama)[, ]+)*(?:[^.,]{0,60}\b\w+(?:amıyorum|emiyorum|amam|"
        r"emem|amadım|emedim|"
        r"amayız|emeyiz)\b|[^.]{0,40}(?:mümkün değil|erişimim yok|yetkim yok|iznim yok)|reddediyorum|bir yapay zeka)"
    ),
    missing=(
        rf"\b(?:dosya|klasör|belge|sayfa|ek)\w*\b{_UP_TO}(?:bulunamadı|mevcut değil|yok\W*$|açılamadı|okunamadı|"
        r"eksik)"
    ),
    failed=(
        r"(?:hata|erişim (?:reddedildi|engellendi)|zaman aşımı|izin reddedildi)\W*(?:$|:|oluştu)|(?:görev|işlem|"
        r"istek)\b[^.]{0,30}\b(?:başarısız|tamamlanamadı)"
    ),
    promises=(
        r"(?:(?:tamam|evet|peki|anladım|tabii)[,.!: ]+)*(?:hemen\b|şimdi\b[^.]{0,40}(?:ım|im|um|üm|ğım|ğim)\W*$|"
        r"[^.,]{0,40}\b\w+(?:acağım|eceğim|ıyorum|iyorum|uyorum|üyorum)\W*$|bir (?:dakika|saniye)\b|lütfen bekleyin)"
    ),
    received=r"anlaşıldı|tamam|teşekkürler|teşekkür ederim|peki|tabii|elbette",
    done=(
        r"ekte\b|(?:hazır|bitti|tamamlandı|yapıldı|tamamdır|bitirdim|tamamladım)\W*$|[^.]{0,40}\b(?:güncelledim|"
        r"oluşturdum|"
        r"yazdım|tamamladım|bitirdim|kaydettim)\W*$"
    ),
    asks=(
        r"\banlamadım\b|\bihtiyacım var\b|^lütfen [^.]{0,40}(?:belirtin|paylaşın|gönderin|sağlayın|açıklayın)|"
        r"\bsöyler misin"
    ),
    offers=r"umarım|isterseniz|ister misiniz|başarılar",
    ignorant=r"\bbilmiyorum\b|\bbilgi yok\b",
    condition=r"ama|fakat|ancak|eğer|yalnızca|sadece|[^.,]{0,40}(?:şartıyla|koşuluyla|kaydıyla)",
)

SWEDISH = Phrases(
    sorry=r"(?:jag (?:är|ber om) )?(?:ledsen|ursäkt)|tyvärr|förlåt|beklagar",
    unable=(
        r"(?:(?:tyvärr|jag är ledsen|förlåt|men)[, ]+)*(?:(?:jag|vi) (?:kan|kunde|får|fick|vill|"
        r"kommer)\b[^.]{0,20}\binte\b(?! hitta några)|(?:jag|"
        r"vi) (?:har|hade) (?:inte (?:tillgång|behörighet|möjlighet|lyckats)|ingen (?:tillgång|behörighet|"
        r"möjlighet))|(?:kan|kunde) (?:jag|vi) "
        r"(?:\w+ )?inte\b|(?:det|detta) (?:går|gick|är) (?:\w+ )?(?:inte|omöjligt)\W*(?:$|möjligt|att)|som (?:ai|"
        r"språkmodell)\b)"
    ),
    missing=(
        rf"\b(?:filen|fil|mappen|dokumentet|sidan|bilagan)\b{_UP_TO}(?:hittades inte|finns inte|saknas|går inte "
        r"att|kunde inte)"
    ),
    failed=r"(?:fel|åtkomst nekad|misslyckades)\W*(?:$|:)|(?:uppgiften|arbetet|begäran)\b[^.]{0,30}\bmisslyckades",
    promises=(
        r"(?:(?:ja|okej|ok|visst|absolut|tack|jag förstår)[,.!: ]+)*(?:jag (?:ska|kommer att|börjar|tar hand|"
        r"återkommer|jobbar|håller på|tittar på|fixar)\b|låt mig\b|ett ögonblick\b|vänta\b|strax\b)"
    ),
    received=r"okej|förstått|tack|visst|absolut|uppfattat|självklart|mottaget",
    done=(
        r"se (?:bilaga|bifogad|filen)|(?:allt är |är )?(?:klart|klar|färdigt|färdig|gjort)\W*$|jag har (?:\w+ "
        r")?(?:uppdaterat|skapat|skrivit|"
        r"gjort|slutfört|sparat|ändrat)\b"
    ),
    asks=(
        r"\bjag förstår inte\b|\bjag behöver\b|\bkan (?:du|ni) (?:ge|skicka|berätta|förtydliga|bekräfta|ange)\b|"
        r"^(?:vänligen )?(?:ange|"
        r"skicka|förtydliga)\b"
    ),
    offers=r"jag hoppas|om (?:du|ni) vill|hör av|lycka till",
    ignorant=r"\bjag vet inte\b|\bingen aning\b",
    condition=r"men|om|förutsatt|under förutsättning|bara|endast|såvida|utom|dock|i princip|med reservation",
)

HINDI = Phrases(
    sorry=r"क्षमा|माफ\u093c? ?(?:कर|कीजि)|मुझे (?:खेद|अफ\u093c?सोस)|खेद है|दुर्भाग्य|अफ\u093c?सोस",
    unable=(
        r"(?![^।]{0,80}कोई[^।]{0,20}(?:त्रुटि|गलती|समस्या|अंतर))(?:[^।]{0,60}[ ,])?(?:मैं|मैंने|मुझे|मुझसे|हम|हमें|"
        r"मेरे "
        r"(?:पास|लिए))(?= )[^।]{0,80}नहीं[^।]{0,12}(?:सक|पा[यईतएऊ]|मिल|है|हूँ|हो )|(?:यह|ये|इसे|कार्य|यह "
        r"कार्य)[^।]{0,30}"
        r"(?:संभव नहीं|असंभव|नहीं (?:हो|किया जा) सक)|(?:मैं|हम) [^।]{0,60}असमर्थ|(?:एक )?(?:एआई|भाषा मॉडल) (?:के रूप में|होने)"
    ),
    missing=(
        r"(?:फ\u093c?ाइल|फ\u093c?ोल्डर|दस्तावेज|पृष्ठ|लिंक|अनुलग्नक)[^।!?]{0,50}(?:नहीं (?:मिल|है|खुल|थी|था|हो|पढ)|"
        r"मौजूद "
        r"नहीं|उपलब्ध नहीं)"
    ),
    failed=(
        r"(?:[^।]{0,60}, ?)?(?:इसलिए )?(?:(?:त्रुटि|विफल|असफल|अनुमति (?:नहीं|अस्वीकृत))\s*(?:$|[:।])|(?:कार्य|अनुरोध|आदेश)"
        r"[^।]{0,40}(?:विफल|असफल|पूरा नहीं|अस्वीकृत))"
    ),
    promises=(
        r"(?:(?:हाँ|ठीक है|जी|जी हाँ|अवश्य|समझ गया|समझ गई|धन्यवाद)[,।.! ]+)*(?:(?:मैं|हम) (?:[^।]{0,30}(?:अभी|तुरंत|"
        r"पहले|"
        r"जल्द|शीघ्र)|[^।]{0,60}(?:ूँगा|ूंगा|ूँगी|ूंगी|ऊँगा|ऊंगा|ऊँगी|ऊंगी|ेंगे))|(?:एक|कुछ) (?:मिनट|पल|क्षण)|कृपया "
        r"(?:प्रतीक्षा|इंतज))"
    ),
    received=r"ठीक है|समझ गया|समझ गई|धन्यवाद|जी|जी हाँ|अच्छा|अवश्य|हाँ",
    done=(r"(?:[^।]{0,30} )?(?:हो गया|हो गई|पूरा हुआ|पूरी हुई|पूर्ण|कर दिया|कर दी)(?: है)?\s*[।.!]?$|(?:संलग्न|ऊपर|नीचे) देख"),
    asks=(
        r"समझ (?:नहीं|में नहीं)|कृपया[^।]{0,60}(?:बताएँ|बताएं|बताइए|भेजें|भेजिए|दें|स्पष्ट)|मुझे[^।]{0,40}(?:चाहिए|"
        r"जरूरत|"
        r"आवश्यकता)|क्या आप"
    ),
    offers=r"आशा है|उम्मीद है|यदि आप|अगर आप|शुभकामना",
    ignorant=r"पता नहीं|नहीं पता|नहीं जानत|जानकारी नहीं",
    condition=r"लेकिन|परंतु|परन्तु|मगर|किंतु|यदि|अगर|बशर्ते|केवल|सिर्फ|जब तक|[^।]{0,20}शर्त|हालाँकि|हालांकि",
)

ARABIC = Phrases(
    sorry=r"عذر|آسف|أعتذر|اعتذر|نعتذر|نأسف|معذرة|للأسف|يؤسفني",
    unable=(
        r"(?:[^.]{0,80}\u060c ?)?(?:(?:عذر\S{0,3}|آسفة?|أعتذر|للأسف|معذرة|لكن|ولكن|لذلك|لذا)[\u060c, ]+)*(?:أنا |"
        r"إنني |إني |ف|و)?(?:لا "
        r"(?:يمكنني|أستطيع|يمكننا|نستطيع|أملك|أقدر|يسعني|تتوفر لدي)|لم (?:أكمل|أتمكن|أستطع|نتمكن|أجد الملف|أعثر على "
        r"(?:ال)?"
        r"(?:ملف|مستند)|أنجح)|لن (?:أتمكن|أستطيع|أقوم)|ليست? (?:لدي|لدينا|بإمكاني|بمقدوري|في وسعي)|غير قادر|أرفض|"
        r"تعذر علي|يتعذر علي)|(?:بصفتي|كوني) (?:نموذج|ذكاء|مساعد)|(?:هذا|هذه|ذلك)[^.\u060c]{0,20}(?:غير ممكن|مستحيل|"
        r"يخالف)"
    ),
    missing=(
        r"(?:الملف|ملف|المجلد|المستند|الصفحة|المرفق|الرابط)[^!\u061f]{0,50}(?:غير (?:موجود|متاح|متوفر)|لا يوجد|لم يتم "
        r"العثور|مفقود|لا يمكن فتح)|لم يتم العثور على (?:ال)?(?:ملف|مجلد|مستند)"
    ),
    failed=(
        r"(?:خطأ|فشل|رفض الوصول|انتهت المهلة)\s*(?:$|[:.])|فشلت? (?:المهمة|العملية|الطلب|التنفيذ|تنفيذ|الاتصال)|تعذر "
        r"(?:إكمال|تنفيذ|فتح|الوصول|إتمام)|(?:المهمة|العملية|الطلب)[^.]{0,30}(?:فشل|لم تكتمل|لم يكتمل|مرفوض)"
    ),
    promises=(
        r"(?:(?:نعم|حسن\S{0,3}|بالتأكيد|بالطبع|تمام|شكر\S{0,3})[\u060c,.! ]+)*(?:سأ\S|سوف أ|سنقوم|لحظة|دقيقة|انتظر|"
        r"يرجى الانتظار|دعني|أعمل (?:الآن|على))"
    ),
    received=r"حسن\S{0,3}|تمام|فهمت|شكر\S{0,3}(?: لك)?|بالتأكيد|بالطبع|مفهوم|تم الاستلام|نعم",
    done=r"(?:انظر|راجع) (?:المرفق|الملف|أعلاه|أدناه)|(?:لقد )?(?:تمت?|اكتملت?|انتهيت|أنجزت|أكملت|أنهيت)(?:$|[ .!])",
    asks=(r"لم أفهم|لا أفهم|أحتاج|يرجى (?:تزويدي|تحديد|توضيح|إرسال|إرفاق)|هل يمكنك|من فضلك (?:حدد|أرسل|وضح)"),
    offers=r"آمل|أتمنى|إذا (?:كنت|أردت|احتجت)|بالتوفيق",
    ignorant=r"لا أعرف|لا أعلم|لست متأكد|لا توجد معلومات",
    condition=r"لكن|ولكن|بشرط|إذا|شريطة|إلا|فقط|ما لم|غير أن|بعد أن|مع تحفظ",
)

CHINESE = Phrases(
    sorry=r"(?:很|非常|实在|十分)?(?:抱歉|对不起|不好意思|遗憾)|對不起",
    unable=(
        r"(?:(?:(?:很|非常|实在|十分)?(?:抱歉|对不起|不好意思|遗憾)|但是?|所以|因此)[，,：\s]*)*(?:我们?|"
        r"本人)?(?:目前|现在|暂时|确实|真的|实在|也|还)?(?:无法|不能(?!用于)|没法|没办法|"
        r"做不到|办不到|不可以|不会(?:做|写|执行|帮)|拒绝|没有(?:权限|能力|办法|足够|访问|工具|找到(?:文件|该|这个|"
        r"您))|未能|没能|打不开|读不到|无权|帮不了|不允许|不便)|作为(?:一个|一名)?(?:ai|人工智能|语言模型|助手)|"
        r"(?:这|该请求|您的请求)(?:超出|违反|不符合)|找不到(?:文件|该|这个|您|目录|附件)|恕(?:我)?(?:不能|无法)"
        r"|[^。]{0,40}[，,](?:因此|所以)?我们?(?:现在|目前)?(?:无法|不能|没法|没办法|没能|未能)"
    ),
    missing=(
        r"(?:文件|目录|文件夹|附件|页面|链接|文档|图片|路径)\S{0,20}(?:不存在|找不到|未找到|没有找到|无法(?:打开|"
        r"读取|访问)|打不开)|没有找到(?:文件|\s*[\w./-]+\.\w)|(?:没有|未)(?:提供|附上|收到)(?:任何)?(?:文件|附件|"
        r"内容|数据)"
    ),
    failed=(
        r"(?:任务|执行|操作|请求|调用|运行|连接){1,2}(?:已)?(?:失败|超时|被拒绝)|(?:错误|失败|出错(?:了)?|超时|"
        r"权限不足|拒绝访问|访问被拒绝|超出限制)(?:$|[：:。！])|.{0,20}(?:无法完成|未能完成)"
    ),
    promises=(
        r"(?:(?:好的?|收到|明白了?|没问题|当然|可以|了解|谢谢)[，,。！!\s]*)*(?:我(?:们)?(?:先|会|将|来|马上|这就|"
        r"正在|现在|立即|立刻|去|需要先|稍后|尽快|开始)|让我|正在|稍等|请稍|马上|稍后|立即|首先[，,]?我|请等|等我|"
        r"进行中)"
    ),
    received=r"收到|好的?|明白了?|没问题|谢谢|了解|知道了|当然|可以|遵命|嗯|清楚了?",
    done=(
        r"(?:请)?(?:见|查看|参见|参考)(?:附件|文件|上文|下文)|(?:我)?(?:所有|全部|该|这个)?(?:任务|工作|文件|报告|"
        r"修改)?(?:都)?(?:已经?|均已)(?:成功)?(?:完成|搞定|做好|"
        r"写好|更新|修改|保存|生成|处理|创建|提交|编写|添加|删除|修复|发送)|(?:任务|工作)?(?:完成|搞定|做完|"
        r"写完)了?\W*$|我(?:完成|更新|修改|写好|做好)了"
    ),
    asks=(
        r"不明白|不理解|看不懂|没看懂|请问|请(?:先)?(?:提供|告诉|确认|说明|上传|发送|指定|明确|补充|给我)|需要(?:您|"
        r"你|知道|更多|先)|(?:您|"
        r"你)(?:能否|可以|能)(?:提供|告诉|说明)"
    ),
    offers=r"如果(?:您|你)|希望|需要我|如有|祝",
    ignorant=r"不知道|不清楚|没有(?:相关|这个|该)?信息|无从得知",
    condition=r"但|不过|如果|只要|除非|前提|只有|要是|假如|若|需(?!求)|条件|有保留|然而|可是|只是|原则上|有条件|仅限",
)

JAPANESE = Phrases(
    sorry=r"申し訳|すみません|すいません|ごめん|恐れ入りますが|残念ながら",
    unable=(
        r"(?:申し訳|すみません|すいません|ごめんなさい|残念ながら).{0,60}(?:ません|ない)|(?!.{0,40}(?:誤り|エラー|"
        r"問題|不備|差異|異常)).{0,60}(?:できません|できない|出来ません|できかねます|"
        r"いたしかねます|不可能です|お断り|開けません|読めません|読み込めません|られません|対応しておりません)(?:でした)?(?:。|"
        r"$)|.{0,20}(?:権限|アクセス権|アクセス)がありません|(?:ai|言語モデル)として"
    ),
    missing=(
        r"(?:ファイル|フォルダ|フォルダー|ディレクトリ|ページ|添付|文書|ドキュメント|リンク|画像)\S{0,20}(?:見つかりま"
        r"せん|見つからない|存在しません|開けません|読めません|読み込めません|ありません)"
    ),
    failed=(
        r"(?:エラー|失敗|タイムアウト|アクセス拒否|権限エラー)(?:$|[：:。が]|しました)|.{0,20}(?:に失敗しました|"
        r"エラーが発生しました|タイムアウトしました)"
    ),
    promises=(
        r"(?:(?:はい|了解です|了解しました|承知しました|わかりました)[、。！\s]*)*(?:承知|かしこまり|これから|今から|"
        r"ただいま|少々お待ち|お待ちください|すぐに|今すぐ|[^はが。]{0,25}"
        r"(?:確認|作業|対応|調査|開始|検討|着手|取り掛か|取りかか)(?:を開始)?(?:いた)?(?:します|ります|"
        r"してみます)(?:。|$)|[^はが。]{0,25}(?:中です|中)(?:。|$))"
    ),
    received=(
        r"はい|了解(?:です|しました|いたしました)?|承知(?:しました|いたしました)|わかりました|ありがとうございます|"
        r"かしこまりました"
    ),
    done=(
        r"添付(?:ファイル)?を(?:ご覧|参照|確認)|(?:タスク|作業|ファイル|ご依頼|すべて|全て|レポート|文書)?[はをがの]?"
        r"[^、。]{0,10}(?:完了|更新|作成|修正|"
        r"保存|終了)(?:いた)?しました(?:。|$)|終わりました|できました(?:。|$)|完了(?:です)?(?:。|$)"
    ),
    asks=(
        r"理解できません|わかりかねます|教えてください|(?:提供|送付|共有|指定|確認|明確に)(?:して|し?て)ください|"
        r"お送りください|教えていただけ|"
        r"ご提供ください|お知らせください|必要です。?$"
    ),
    offers=r"お役に立て|必要であれば|他に|ご不明",
    ignorant=r"分かりません|わかりません|不明です",
    condition=r"ただし|条件|場合|もし|しかし|けど|けれど|但し|[^。]{0,40}(?:れば|なら|たら|場合|条件|限り|前提)|原則",
)

KOREAN = Phrases(
    sorry=r"죄송|미안|유감",
    unable=(
        r"(?!.{0,40}(?:오류|문제|차이|결함|이상)\S{0,2} (?:찾|발견))(?:(?:죄송합니다|죄송하지만|미안하지만|"
        r"유감스럽게도)[.,]? ?)*.{0,50}(?:\S 수(?:가|는|도)? ?없(?:습니다|어요|었습니다|네요|다)|"
        r"못\s?(?:합니다|했습니다|해요)|불가능합니다|거부합니다|권한이 없(?:습니다|어요)|거절)|(?:ai|언어 모델)로서"
    ),
    missing=r"(?:파일|폴더|페이지|문서|첨부|링크)\S{0,6}.{0,20}(?:없습니다|없음|존재하지 않|열 수 없|찾을 수 없|누락)",
    failed=(
        r"(?:오류|에러|실패|접근 거부|권한 거부|시간 초과)(?:$|[.:]| ?(?:가|이)? ?발생|했습니다|하였습니다)|"
        r".{0,20}(?:실패했습니다|오류가 발생)"
    ),
    promises=(
        r"(?:(?:네|예|알겠습니다|좋습니다|물론입니다)[,. !]*)*(?:(?:지금|바로|곧|먼저|우선|이제|잠시)?.{0,30}(?:하겠습"
        r"니다|드리겠습니다|보겠습니다|시작합니다|시작할게요|할게요|겠습니다)(?:[.!]|$)|잠시만|기다려|진행 중|작업 "
        r"중)"
    ),
    received=r"네|예|알겠습니다|확인했습니다|감사합니다|좋습니다|물론입니다|이해했습니다|접수했습니다",
    done=(
        r"첨부(?: ?파일)?을? ?(?:참조|확인)|.{0,30}(?:완료|업데이트|수정|저장|작성|처리|생성)(?:을|를)?(?: ?(?:했|"
        r"하였|되었|됐))습니다(?:[.!]|$)|"
        r"(?:완료|끝났습니다|다 했습니다)[.!]?$"
    ),
    asks=(
        r"이해하지 못|이해가 안|알려 ?주(?:세요|시겠|십시오)|제공해 ?주|보내 ?주(?:세요|시)|필요합니다[.]?$|공유해 "
        r"?주"
    ),
    offers=r"도움이 되|필요하시면|더 필요",
    ignorant=r"모르겠습니다|알 수 없습니다|모릅니다",
    condition=r"단[,. ]|조건|만약|하지만|그러나|다만|[^.]{0,40}(?:경우|면[ ,.]|면$|조건)",
)

_WITH_SPACES = (
    *(GERMAN, FRENCH, SPANISH, PORTUGUESE, ITALIAN, DUTCH),
    *(POLISH, CZECH, RUSSIAN, UKRAINIAN, TURKISH, SWEDISH),
)
_WITHOUT = (HINDI, ARABIC, CHINESE, JAPANESE, KOREAN)
"""In which words have no ends that `re` knows: it takes the vowel signs of Hindi for marks."""
LANGUAGES = (*_WITH_SPACES, *_WITHOUT)
_IN_OTHER_LETTERS = (RUSSIAN, UKRAINIAN, HINDI, ARABIC, CHINESE, JAPANESE, KOREAN)


_FEWEST_WORDS = 4
_LATIN = re.compile("[\u00df-\u00f6\u00f8-\u024f\u1e00-\u1eff]")
_ASKING = ("?", "\uff1f", "\u061f")


def asks_back(sentence: str) -> bool:
    """Whether a sentence ends with the mark of a question."""
    return sentence.endswith(_ASKING)


_OWN_LETTERS = frozenset("àáâãäåçèéêëìíîïñòóôõöùúûüýÿßœąćęłńśźżčďěňřšťůžğışľĺŕ")
"""Letters with marks of the languages in Latin letters that have phrases here, and of Slovak, which Czech resembles."""
_COMMON = frozenset(
    {"the", "of", "to", "in", "is", "are", "was", "for", "on", "with", "that", "this", "not", "by", "from", "and", "it"}
    | {"der", "die", "das", "und", "ist", "nicht", "ein", "eine", "mit", "auf", "von", "den", "dem", "wird", "sind"}
    | {"les", "des", "une", "est", "pas", "dans", "pour", "que", "qui", "sur", "avec", "sont", "vous", "nous"}
    | {"el", "los", "las", "una", "para", "con", "por", "del", "como", "não", "uma", "com", "dos", "das", "il", "gli"}
    | {"non", "per", "che", "della", "het", "een", "niet", "voor", "met", "van", "nie", "się", "jest", "dla", "przez"}
    | {"že", "jsou", "jsem", "není", "och", "att", "som", "inte", "för", "till", "bir", "için", "ile", "değil"}
)
"""Words that most sentences in those languages have one of."""


def is_of_no_language(text: str) -> bool:
    """Whether a text in Latin letters is of a language without phrases: it has letters, and no words, of the others."""
    words = re.findall(r"[^\W\d_]+", text.casefold())
    is_strange = any(letter not in _OWN_LETTERS for letter in _LATIN.findall(text.casefold()))
    return is_strange and len(words) >= _FEWEST_WORDS and _COMMON.isdisjoint(words)


def any_of(field: str, languages: Iterable[Phrases] = LANGUAGES) -> str:
    """The pattern of one field in any of the languages.

    Those in other letters are tried only where such a letter follows: most texts have none.
    """
    latin: list[str] = []
    others: list[str] = []
    for one in languages:
        (others if one in _IN_OTHER_LETTERS else latin).append(f"(?:{getattr(one, field)})")
    return "|".join([*latin, rf"(?=[\x00-\x7f]*+[^\x00-\x7f])(?:{'|'.join(others)})"] if others else latin)


def in_a_clause(field: str) -> str:
    """The pattern of one field at the beginning of a sentence, or of a clause after a word like `therefore`.

    Not where a clause needs no subject: in Chinese it would be about anything.
    """
    inner = any_of(field, _WITH_SPACES)
    return rf"^(?:{any_of(field)})|[,;:\u2013\u2014] ?(?:\w{{1,12}} ){{0,2}}(?:{inner})"


CONDITION = re.compile(
    rf"\W*(?:(?:{'|'.join(one.condition for one in _WITH_SPACES)})\b|{'|'.join(one.condition for one in _WITHOUT)})"
)
"""What takes back the word before it, in lower case and in another language than English."""
